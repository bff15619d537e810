#include "cache/pack/pack_slots.h"

#include <algorithm>

#include "cache/pack/pack_io.h"

namespace cube::cache {

namespace sys = base::sys;

base::Result<void> PackSlots::add(const PackSlot& slot) {
  recent_.push_back(slot);
  if (recent_.size() < k_in_memory) return {};
  return spill();
}

base::Result<void> PackSlots::spill() {
  if (!file_) {
    long fd = sys::open(directory_.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    // Not every file system supports unnamed files.
    if (sys::failed(fd)) fd = sys::memfd_create("cubeshim-pack", MFD_CLOEXEC);
    if (sys::failed(fd)) return base::fail(static_cast<int>(-fd));
    file_.reset(static_cast<int>(fd));
  }
  const auto written = write_at(file_.get(), recent_.data(), recent_.size() * sizeof(PackSlot),
                                spilled_ * sizeof(PackSlot));
  if (!written) return written;
  spilled_ += recent_.size();
  recent_.clear();
  return {};
}

base::Result<std::span<const PackSlot>> PackSlots::sorted() {
  if (spilled_ == 0) {
    std::sort(recent_.begin(), recent_.end());
    return std::span<const PackSlot>(recent_);
  }
  if (!recent_.empty()) {
    const auto spilled = spill();
    if (!spilled) return base::fail(spilled.error().value);
  }
  // write_at has written every byte, so stores to the mapping cannot fail even if the disk is full.
  auto mapping =
      base::Mapping::shared(file_.get(), 0, spilled_ * sizeof(PackSlot), PROT_READ | PROT_WRITE);
  if (!mapping) return base::fail(mapping.error().value);
  mapping_ = std::move(*mapping);
  const std::span slots(reinterpret_cast<PackSlot*>(mapping_.data()), spilled_);
  std::sort(slots.begin(), slots.end());
  return std::span<const PackSlot>(slots);
}

}  // namespace cube::cache
