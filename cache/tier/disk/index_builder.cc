#include "cache/tier/disk/index_builder.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "cache/base/file_io.h"
#include "cache/base/memory/memory_limits.h"

namespace cube::cache {

namespace sys = base::sys;

base::Result<DiskIndexBuilder> DiskIndexBuilder::create(DiskIndex& index, const char* path,
                                                        std::uint64_t most_window) {
  DiskIndexBuilder builder(index, path);
  const DiskGeometry& geometry = index.geometry();
  std::uint64_t fills = 0;
  for (std::uint32_t t = 0; t < DiskGeometry::k_tables; ++t) {
    builder.first_fill_[t] = fills;
    fills += geometry.bucket_count[t];
  }
  auto memory = base::Mapping::anonymous(fills);
  if (!memory) return base::fail(memory.error().value);
  builder.fills_ = std::move(*memory);
  const std::uint64_t tables_bytes = geometry.file_bytes - geometry.table_at[0];
  if (path == nullptr) {
    builder.slots_ = reinterpret_cast<std::byte*>(index.table(0));
    builder.bytes_ = tables_bytes;
    return builder;
  }
  constexpr std::uint64_t k_least_window = 1 << 20;
  builder.bytes_ = std::min(
      {tables_bytes, most_window, std::max(base::available_memory() / 8, 16 * k_least_window)});
  builder.bytes_ = base::round_up(builder.bytes_, k_page);
  while (true) {
    memory = base::Mapping::anonymous(builder.bytes_);
    if (memory) break;
    if (builder.bytes_ <= k_least_window) return base::fail(memory.error().value);
    builder.bytes_ = base::round_up(builder.bytes_ / 2, k_page);
  }
  builder.window_ = std::move(*memory);
  builder.slots_ = builder.window_.data();
  // Ignores errors, because huge pages only make the build faster.
  sys::madvise(builder.slots_, builder.bytes_, MADV_HUGEPAGE);
  return builder;
}

bool DiskIndexBuilder::add(std::uint64_t hash, std::uint64_t word) {
  for (std::uint32_t t = 0; t < most_tables_; ++t) {
    if (t >= index_->tables() && !index_->add_table(path_, t)) {
      most_tables_ = t;
      return false;
    }
    std::uint64_t bucket = index_->first_bucket(hash, t);
    const std::uint64_t other = index_->second_bucket(hash, t);
    // Always chooses the emptier bucket. DiskIndex::slot_for() does not, because there it would be
    // too slow. In a test with 40 million entries, all found room in the same table; with the
    // choice of slot_for(), 3 needed the next table.
    if (fill_of(t, other) < fill_of(t, bucket)) bucket = other;
    std::uint8_t* const fill = &fill_of(t, bucket);
    if (*fill >= DiskBucket::k_slots) continue;
    const std::uint64_t at = index_->geometry().table_at[t] - index_->geometry().table_at[0] +
                             bucket * sizeof(DiskBucket) + *fill * sizeof word;
    ++*fill;
    // A slot never crosses the end of the window.
    if (at >= begin_ && at - begin_ < bytes_) put(at - begin_, word);
    return true;
  }
  return false;
}

// Prefetches the slot now, and writes it some entries later, when it is in a processor cache.
void DiskIndexBuilder::put(std::uint64_t at, std::uint64_t word) {
  std::byte* const slot = slots_ + at;
  __builtin_prefetch(slot, 1);
  Waiting& waiting = waiting_[next_waiting_++ % waiting_.size()];
  if (waiting.slot != nullptr) std::memcpy(waiting.slot, &waiting.word, sizeof waiting.word);
  waiting = {slot, word};
}

base::Result<bool> DiskIndexBuilder::end_pass() {
  for (Waiting& waiting : waiting_) {
    if (waiting.slot != nullptr) std::memcpy(waiting.slot, &waiting.word, sizeof waiting.word);
    waiting = {};
  }
  const std::uint64_t end = index_->reserved_bytes() - index_->geometry().table_at[0];
  if (path_ == nullptr) return false;
  if (const auto written = write_window(std::min(bytes_, end - begin_)); !written)
    return base::fail(written.error().value);
  begin_ += bytes_;
  // Gives the memory back to the kernel. After that, the memory contains zeros again.
  sys::madvise(window_.data(), window_.size(), MADV_DONTNEED);
  sys::madvise(fills_.data(), fills_.size(), MADV_DONTNEED);
  return begin_ < end;
}

base::Result<void> DiskIndexBuilder::write_window(std::uint64_t bytes) const {
  const auto fd = index_->reopen(path_);
  if (!fd) return base::fail(fd.error().value);
  return base::write_at(fd->get(), slots_, bytes, index_->geometry().table_at[0] + begin_);
}

}  // namespace cube::cache
