// LargeFile, for objects of buckets. An object has no fd: the gateway fetches the absent pages into
// the chunks, and the program waits for the gateway's answer. A read that does not continue a
// sequence fetches little more than its own bytes. An object that is read sequentially is read
// ahead: the gateway keeps a window of requests in flight. Whenever the program has to wait, the
// window becomes four times as wide.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "cache/fill/large/large_file.h"
#include "cache/origin/origin.h"
#include "cache/region/large/large_pages.h"

namespace cube::cache {
namespace {

using base::Counter;

// Requests are multiples of this size. Smaller requests would take as long.
constexpr std::uint64_t k_object_grain = 256 << 10;
constexpr std::uint64_t k_first_object_window = 8 << 20, k_widest_object_window = 128 << 20;
// A read fails after this many attempts. An attempt fails if other bytes replace the fetched bytes
// before they are copied to the program.
constexpr unsigned k_object_tries = 32;

constexpr std::uint64_t rounded_up(std::uint64_t at, std::uint64_t unit) {
  return (at + unit - 1) / unit * unit;
}

// The widest window in bytes. In a wider window, bytes could be replaced before the program reads
// them.
std::uint64_t widest_object_window(const Chunks& chunks) {
  const std::uint64_t room =
      chunks.is_full() ? chunks.passing_bytes() / 4 : chunks.region().layout().file_bytes / 8;
  return std::clamp<std::uint64_t>(room, k_chunk_bytes, k_widest_object_window);
}

}  // namespace

LargeFile* LargeFile::begin_object(CacheParts& parts, std::string_view key, const FileStat& stat) {
  if (key.size() >= PATH_MAX || !stat.is_regular() || stat.size == 0) return nullptr;
  LargeFile* const file = take(parts, key, stat);
  if (file == nullptr) return nullptr;
  file->note_flags(-1, 0);
  auto& record = *new (file->named_.record) Record{};
  record.magic = Record::k_magic;
  record.version = Record::k_version;
  record.kind = RecordKind::file;
  record.flags = Record::k_flag_physical;
  record.path_length = static_cast<std::uint32_t>(key.size());
  record.data_size = stat.size;
  record.views.store(1, std::memory_order_relaxed);
  record.stat = stat;
  record.origin = stat.device_minor;
  return file;
}

// Asks the gateway for the first of the `n` bytes at offset `at`, and waits until they have
// arrived. The gateway may fetch further bytes ahead.
int LargeFile::ask_for_object(CacheParts& parts, std::uint64_t at, std::size_t n,
                              bool is_sequence) {
  const std::uint64_t block = std::max(parts.rules.block, k_object_grain);
  std::uint64_t begin = at, end = at, ahead_end = at;
  if (is_sequence && advice_.load(std::memory_order_relaxed) != Advice::random) {
    const std::uint64_t widest = widest_object_window(chunks(parts));
    const std::uint64_t window = window_.load(std::memory_order_relaxed);
    const std::uint64_t wider = std::min(std::max(window * 4, k_first_object_window), widest);
    window_.store(wider, std::memory_order_relaxed);
    end = rounded_up(at + std::min<std::uint64_t>(n, block), block);
    ahead_end = end + std::max(wider, std::min<std::uint64_t>(n, widest));
    ahead_end_.store(ahead_end, std::memory_order_relaxed);
  } else {
    begin = at / k_object_grain * k_object_grain;
    end = rounded_up(at + std::min<std::uint64_t>(n, block), k_object_grain);
    ahead_end = std::max(end, at + std::min(n, widest_object_window(chunks(parts))));
  }
  return parts.freshness.origin_of(named_.path)
      .fetch_blocks(record().path(), stat_, begin, std::min(end, stat_.size),
                    std::min(ahead_end, stat_.size));
}

// Moves the window forward after a sequential read that did not fail.
void LargeFile::advance_object(CacheParts& parts, std::uint64_t end) {
  const std::uint64_t window = window_.load(std::memory_order_relaxed);
  std::uint64_t from = ahead_end_.load(std::memory_order_relaxed);
  if (window == 0 || from >= std::min(end + window / 2, stat_.size)) return;
  const std::uint64_t block = std::max(parts.rules.block, k_object_grain);
  const std::uint64_t to = std::min(end + window, stat_.size);
  from = rounded_up(std::max(from, end), block);
  while (from < to && is_block_present(parts, from, block)) from += block;
  ahead_end_.store(std::max(from, to), std::memory_order_relaxed);
  if (from < to)
    parts.freshness.origin_of(named_.path).fetch_blocks(record().path(), stat_, from, from, to);
}

long LargeFile::read_object(CacheParts& parts, std::byte* to, std::size_t n, std::uint64_t at) {
  const std::uint64_t next = next_.exchange(at + n, std::memory_order_relaxed);
  const bool goes_on = next == at && at != 0;
  if (!goes_on) window_.store(0, std::memory_order_relaxed);
  std::size_t done = 0;
  unsigned tries = 0;
  bool has_waited = false;
  int error = 0;
  while (done < n) {
    if (const std::size_t got = copy_present(parts, to + done, n - done, at + done); got != 0) {
      done += got;
      tries = 0;
      continue;
    }
    has_waited = true;
    error = tries++ == k_object_tries
                ? ENOSPC
                : ask_for_object(parts, at + done, n - done, goes_on || done != 0);
    if (error != 0) break;
  }
  parts.stats().count(has_waited ? Counter::block_misses : Counter::block_hits);
  parts.stats().count(Counter::block_read, done);
  parts.region.note_read(done);
  if (done == 0 && error != 0) return -error;
  if (goes_on && error == 0) advance_object(parts, at + n);
  return static_cast<long>(done);
}

int LargeFile::bring_object(CacheParts& parts, std::uint64_t begin, std::uint64_t end) {
  const Origin& origin = parts.freshness.origin_of(named_.path);
  end = std::min(end, stat_.size);
  // Requests one window at a time. If the whole range were requested at once, its first chunks
  // could be replaced before the program reads them.
  const std::uint64_t step = widest_object_window(chunks(parts));
  for (std::uint64_t at = begin; at < end; at += step) {
    const int error = origin.fetch_blocks(record().path(), stat_, at, std::min(at + step, end),
                                          std::min(at + 2 * step, end));
    if (error != 0) return error;
  }
  return 0;
}

base::Result<base::UniqueFd> LargeFile::copy_object(CacheParts& parts, int flags) const {
  return parts.freshness.origin_of(named_.path).copy_of(record().path(), stat_, flags);
}

bool LargeFile::copy_if_present(CacheParts& parts, std::byte* to, std::size_t n,
                                std::uint64_t at) const {
  std::size_t done = 0, got = 1;
  for (; done < n && got != 0; done += got)
    got = copy_present(parts, to + done, n - done, at + done);
  return done == n;
}

LargeFile::Made LargeFile::make_gap(CacheParts& parts, std::uint64_t begin, std::uint64_t end,
                                    Gap& gap) {
  Chunks chunks = this->chunks(parts);
  const std::uint32_t number = chunk_of(begin);
  for (const auto pass : {Chunks::Pass::may_pass, Chunks::Pass::must_pass}) {
    gap.claim_ = chunks.make(key_, number, place_of(chunks, number), pass);
    if (gap.claim_ || !chunks.waits_for_tiers()) break;
  }
  if (!gap.claim_) return Made::no_room;
  gap.pages_ = gap.claim_.next_absent(pages_of(begin, end));
  if (gap.pages_.is_empty()) return Made::here;
  auto window = chunks.window(gap.claim_, gap.pages_);
  if (!window) return Made::no_room;
  gap.window_ = std::move(*window);
  gap.at = byte_of(number, gap.pages_.first);
  gap.bytes = std::min(gap.pages_.count() * k_chunk_page, stat_.size - gap.at);
  return Made::gap;
}

void LargeFile::fill_gap(CacheParts& parts, const Gap& gap, bool is_ahead,
                         base::Stats& stats) const {
  // Clears the rest of the last page, because a mapping must show zeros past the object's end.
  std::memset(gap.room() + gap.bytes, 0, gap.pages_.count() * k_chunk_page - gap.bytes);
  const Chunks chunks = this->chunks(parts);
  if (is_ahead) {
    chunks.note_ahead(gap.claim_, gap.pages_);
    stats.count(Counter::block_ahead, gap.bytes);
  }
  stats.count(Counter::block_origin, gap.bytes);
  chunks.note_present(gap.claim_, gap.pages_);
}

}  // namespace cube::cache
