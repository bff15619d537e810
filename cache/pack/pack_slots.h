// The slots of an index that is being made. Each record has a slot of 24 bytes, and a pack may have
// a hundred million of them. So most slots lie in an unnamed file, whose memory the kernel can
// reclaim. Thread safety: one thread.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cache/base/memory/mapping.h"
#include "cache/base/unique_fd.h"
#include "cache/pack/pack_format.h"

namespace cube::cache {

class PackSlots {
 public:
  // `directory`: the directory for the unnamed file.
  explicit PackSlots(std::string directory) : directory_(std::move(directory)) {}

  base::Result<void> add(const PackSlot& slot);
  // Returns all slots, sorted. No slot may be added afterwards.
  base::Result<std::span<const PackSlot>> sorted();
  std::uint64_t count() const { return spilled_ + recent_.size(); }

 private:
  static constexpr std::size_t k_in_memory = 64 << 10;
  base::Result<void> spill();

  std::string directory_;
  std::vector<PackSlot> recent_;
  std::uint64_t spilled_ = 0;
  base::UniqueFd file_;
  base::Mapping mapping_;
};

}  // namespace cube::cache
