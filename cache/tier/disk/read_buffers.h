// Reusable memory for reads of records from the disk. With new memory for each read, each page
// would cost a page fault; for a file of 110 KB, these faults take longer than checking and copying
// the bytes. A buffer belongs to one read at a time, begins at a page boundary, and still contains
// the bytes of its last read. At most k_kept buffers of k_bytes each are kept. All other buffers
// are freed after one read: larger ones, and those of further concurrent readers. Thread-safe. The
// functions take no lock, and allocate only by mmap, so they may be called in a signal handler that
// opens a file. A forked child does not inherit the buffers, and must call forget().
#pragma once

#include <array>
#include <atomic>
#include <utility>

#include "cache/base/memory/mapping.h"

namespace cube::cache {

class ReadBuffers {
 public:
  // Room for the record of a block of 1 MiB, at any offset in a page. With its head, such a record
  // is in the first size class above 1 MiB (disk_index.cc).
  static constexpr std::size_t k_bytes = (1 << 20) / 8 * 9 + 4096;
  static constexpr std::size_t k_kept = 4;

  class Lease {
   public:
    Lease(ReadBuffers* owner, base::Mapping mapping)
        : owner_(owner), mapping_(std::move(mapping)) {}
    Lease(Lease&& other) noexcept
        : owner_(std::exchange(other.owner_, nullptr)), mapping_(std::move(other.mapping_)) {}
    Lease& operator=(Lease&&) = delete;
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    ~Lease() {
      if (owner_ != nullptr && mapping_) owner_->keep(std::move(mapping_));
    }
    std::byte* data() const { return mapping_.data(); }
    std::size_t size() const { return mapping_.size(); }

   private:
    ReadBuffers* owner_;  // null: the buffer is freed, not kept
    base::Mapping mapping_;
  };

  // Returns a buffer of at least this many bytes.
  base::Result<Lease> take(std::size_t bytes) {
    if (bytes > k_bytes) {
      auto mapping = base::Mapping::anonymous(bytes);
      if (!mapping) return base::fail(mapping.error().value);
      return Lease(nullptr, std::move(*mapping));
    }
    for (auto& slot : kept_) {
      // Acquire: pairs with the release in keep(), so that the last reader has finished with the
      // buffer.
      if (std::byte* const at = slot.exchange(nullptr, std::memory_order_acquire))
        return Lease(this, base::Mapping::adopt(at, k_bytes));
    }
    auto mapping = base::Mapping::anonymous(k_bytes);
    if (!mapping) return base::fail(mapping.error().value);
    base::sys::madvise(mapping->data(), k_bytes, MADV_DONTFORK);
    return Lease(this, std::move(*mapping));
  }
  // Call it in a forked child, where the buffers are not mapped.
  void forget() {
    for (auto& slot : kept_) slot.store(nullptr, std::memory_order_relaxed);
  }

 private:
  void keep(base::Mapping mapping) {
    for (auto& slot : kept_) {
      std::byte* none = nullptr;
      if (!slot.compare_exchange_strong(none, mapping.data(), std::memory_order_release,
                                        std::memory_order_relaxed))
        continue;
      mapping.forget();
      return;
    }
  }

  // The buffers are never unmapped, because this object is never destroyed.
  std::array<std::atomic<std::byte*>, k_kept> kept_{};
};

}  // namespace cube::cache
