// Part of MappedFiles: reads ahead of a program that will read a whole mapping, part by part.
#include <fcntl.h>

#include <algorithm>
#include <array>
#include <utility>

#include "cache/base/clock.h"
#include "cache/base/memory/kernel_page.h"
#include "cache/base/readahead.h"
#include "cache/base/unique_fd.h"
#include "prefetch/work/mapped_files.h"

namespace cube::prefetch {
namespace {

// How much of a mapping a thread brings in one step.
constexpr std::uint64_t k_part = 1 << 20;
// The size of the head of a file, which tells its format. A program reads the head first, and the
// kernel reads as many bytes for this access.
constexpr std::uint64_t k_head = base::k_one_readahead;
// How far ahead of the program a mapping is read, or its pages are requested from the kernel. The
// distance is a share of the bytes that have been brought, but at least k_nearest and at most
// k_farthest. After a drop of pages it is k_nearest.
constexpr std::uint64_t k_nearest = 2 << 20, k_farthest = 16 << 20, k_ahead_share = 4;

// Returns true if the process has touched one of these pages since they were last dropped.
bool has_touched(std::uintptr_t from, std::uintptr_t to) {
  constexpr std::uint64_t k_present = std::uint64_t{1} << 63;
  const std::uint64_t page = base::kernel_page();
  const auto map = base::open_fd("/proc/self/pagemap", O_RDONLY);
  std::array<std::uint64_t, 512> pages;
  while (map && from < to) {
    const std::size_t count = std::min<std::size_t>((to - from + page - 1) / page, pages.size());
    if (base::sys::pread(map->get(), pages.data(), count * sizeof pages[0],
                         static_cast<std::int64_t>(from / page * sizeof pages[0])) !=
        static_cast<long>(count * sizeof pages[0]))
      return false;
    for (std::size_t i = 0; i < count; ++i) {
      if ((pages[i] & k_present) != 0) return true;
    }
    from += count * page;
  }
  return false;
}

bool is_in_kernel(const std::byte* page) {
  unsigned char is_there = 0;
  return !base::sys::failed(
             base::sys::raw(SYS_mincore, base::sys::arg(page), 1, base::sys::arg(&is_there))) &&
         (is_there & 1) != 0;
}

}  // namespace

bool MappedFiles::bring_part() {
  if (count_.load(std::memory_order_relaxed) == 0) return false;
  for (Row& row : rows()) {
    if (!row.may_have_part.load(std::memory_order_relaxed)) continue;
    if (row.is_left.load(std::memory_order_acquire)) {
      keep_last(row);
      continue;
    }
    if (!row.claim(ClaimedRow::Is::filled)) continue;
    const std::optional<Part> part = next_part(row);
    if (part) row.users.fetch_add(1, std::memory_order_seq_cst);
    give_back(row);
    if (!part) continue;
    news_.notify();
    const auto region_fd = cache_.region().reopen(O_RDWR);
    const auto reading = cache_.large().begin_reading(*row.file);
    cache_.large().ask_mapped(*row.file, row.own, row.begin, part->ask);
    const auto brought = region_fd ? cache_.large().bring_mapped(*row.file, row.own, row.begin,
                                                                 part->bring, region_fd->get())
                                   : std::nullopt;
    count_kept(row, brought.value_or(0));
    if (!brought) row.is_over.store(true, std::memory_order_seq_cst);
    row.users.fetch_sub(1, std::memory_order_seq_cst);
    if (row.claim(ClaimedRow::Is::filled)) give_back(row);
    return true;
  }
  return false;
}

// The caller owns the row. Returns empty if all parts are taken or the next part cannot begin yet.
std::optional<MappedFiles::Part> MappedFiles::next_part(Row& row) {
  const LargeFile::Range all = range_of(row);
  const std::uint64_t size = all.end - all.begin;
  const bool is_unwanted = row.is_over.load(std::memory_order_relaxed) ||
                           row.is_left.load(std::memory_order_acquire) || row.file->is_locked() ||
                           is_stopping_.load(std::memory_order_relaxed);
  if (!is_unwanted) {
    if (const auto part = wanted_part(row); part) return part;
  }
  const bool is_random = row.advice.load(std::memory_order_relaxed) == MADV_RANDOM;
  if (!is_unwanted && !is_random && row.reading == LargeFile::Reading::unknown) {
    if (all.begin == 0 && row.next == 0) {
      row.next = std::min(k_head, size);
      return Part{{0, row.next}, {0, row.next}};
    }
    if (row.users.load(std::memory_order_relaxed) != 0) return {};
    note_reading(row, reading_of(row));
  }
  if (is_unwanted || is_random || row.reading == LargeFile::Reading::unknown || row.next >= size) {
    row.may_have_part.store(false, std::memory_order_relaxed);
    return {};
  }
  if (!may_go_on(row)) return {};
  waits_since_ns_.store(0, std::memory_order_relaxed);
  // Parts begin at multiples of their size in the file.
  const std::uint64_t from = all.begin + row.next,
                      to = std::min((from / k_part + 1) * k_part, all.end);
  row.next = to - all.begin;
  const std::uint64_t ahead = row.reading == LargeFile::Reading::whole
                                  ? std::clamp(row.next / k_ahead_share, k_nearest, k_farthest)
                                  : 0;
  const std::uint64_t asked =
      std::exchange(row.asked, std::max(row.asked, std::min(row.next + ahead, size)));
  return Part{{from, to}, {all.begin + asked, all.begin + row.asked}};
}

// The caller owns the row.
std::optional<MappedFiles::Part> MappedFiles::wanted_part(Row& row) {
  const LargeFile::Range all = range_of(row);
  const std::uint64_t from = all.begin + row.wanted.load(std::memory_order_relaxed),
                      last = std::min(all.begin + row.wanted_end.load(std::memory_order_relaxed),
                                      all.end);
  if (from >= last) return {};
  const std::uint64_t to = std::min((from / k_part + 1) * k_part, last);
  row.wanted.store(to - all.begin, std::memory_order_relaxed);
  const bool goes_on = row.wanted_asked >= from && row.wanted_asked <= from + k_farthest;
  const std::uint64_t asked = goes_on ? row.wanted_asked : from;
  row.wanted_asked = std::min(from + k_farthest, last);
  return Part{{from, to}, {asked, row.wanted_asked}};
}

MappedFiles::LargeFile::Reading MappedFiles::reading_of(const Row& row) {
  switch (row.advice.load(std::memory_order_relaxed)) {
    case MADV_SEQUENTIAL: return LargeFile::Reading::in_order;
    case MADV_RANDOM: return LargeFile::Reading::unknown;
    default: break;
  }
  const LargeFile::Reading reading = cache_.large().reading_of(*row.file, range_of(row));
  // A program that maps the file again and again opens it each time. An open can drop the pages
  // that would be read through this mapping, so the file is brought by reads instead (all_over).
  const bool is_brief = read_all_over(row.version).version == row.version &&
                        base::monotonic_ns() - row.began_ns < k_brief_ns;
  return reading == LargeFile::Reading::whole && is_brief ? LargeFile::Reading::unknown : reading;
}

// The caller owns the row.
void MappedFiles::note_reading(Row& row, LargeFile::Reading reading) {
  if (reading == LargeFile::Reading::unknown || reading == row.reading) return;
  row.reading = reading;
  row.may_have_part.store(true, std::memory_order_relaxed);
  // From now on, lets the kernel read ahead when a page of the library's own mapping is touched.
  base::sys::madvise(row.own.data(), row.own.size(), MADV_NORMAL);
}

// Returns true if the program is close enough to the next part for it to be brought.
bool MappedFiles::may_go_on(const Row& row) {
  if (row.reading != LargeFile::Reading::in_order) return true;
  // The head was brought, so its pages are missing only if the kernel has dropped them.
  const bool has_lost = row.begin == 0 && !is_in_kernel(row.own.data());
  const bool is_narrow = is_narrow_.load(std::memory_order_relaxed) || !row.tells_pages || has_lost;
  if (is_narrow) is_narrow_.store(true, std::memory_order_relaxed);
  const std::uint64_t far =
      is_narrow ? k_nearest : std::clamp(row.next / k_ahead_share, k_nearest, k_farthest);
  // Ignores the first half of the head: the kernel maps 16 pages at a time, so a program that reads
  // only a header touches no more than this half.
  const std::uint64_t begin = std::max(row.next - std::min(row.next, far), k_head / 2);
  const std::uintptr_t at = row.from.load(std::memory_order_relaxed);
  if (has_touched(at + begin, at + std::max(row.next, k_head))) return true;
  std::uint64_t none = 0;
  waits_since_ns_.compare_exchange_strong(none, base::monotonic_ns(), std::memory_order_relaxed);
  return false;
}

}  // namespace cube::prefetch
