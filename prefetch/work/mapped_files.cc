#include "prefetch/work/mapped_files.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <utility>

#include "cache/base/clock.h"
#include "cache/base/readahead.h"
#include "cache/base/unique_fd.h"

namespace cube::prefetch {
namespace {

// A look finds out which pages of mapped files the kernel has. The pause between two looks lasts at
// least k_least_pause_ns, and at least k_pause_for_each times as long as the look took. The time
// spent on copying extends the pause to at most k_most_pause_ns. When a look has taken longer than
// k_longest_look_ns, the remaining mappings are left to the next look.
constexpr std::uint64_t k_least_pause_ns = 100'000'000, k_most_pause_ns = 2'000'000'000,
                        k_pause_for_each = 20;
constexpr std::uint64_t k_longest_look_ns = 50'000'000;
// The pause between two checks for the program's progress.
constexpr std::uint64_t k_least_wait_ns = 500'000, k_wait_share = 8;

// The page faults of the calling thread so far: faults that waited for a read, and others.
struct Faults {
  std::uint64_t waited = 0, others = 0;
};
Faults faults_of_thread() {
  struct ::rusage usage {};
  base::sys::raw(SYS_getrusage, RUSAGE_THREAD, base::sys::arg(&usage));
  return {static_cast<std::uint64_t>(usage.ru_majflt), static_cast<std::uint64_t>(usage.ru_minflt)};
}

}  // namespace

// The caller owns the row.
void MappedFiles::drop(Row& row) {
  LargeFile& file = *row.file;
  row.own.reset();
  file.own_mappings().end();
  file.end();
  count_.fetch_sub(1, std::memory_order_relaxed);
  row.put_back(ClaimedRow::Is::free);
}

// Gives up ownership of the row. If the row has no users, and its mapping is over or its file is
// locked, drops the row.
void MappedFiles::give_back(Row& row) {
  for (;;) {
    const LargeFile& file = *row.file;
    const auto is_to_go = [&] {
      return (row.is_over.load(std::memory_order_seq_cst) || file.is_locked()) &&
             row.users.load(std::memory_order_seq_cst) == 0;
    };
    if (is_to_go()) return drop(row);
    row.put_back(ClaimedRow::Is::filled);
    // In the meantime, another thread might have locked the file or ended its use of the row. That
    // thread found the row claimed and left the check to us.
    if (!is_to_go() || !row.claim(ClaimedRow::Is::filled)) return;
  }
}

// Counts those of the copied bytes that the kernel had not read before.
void MappedFiles::count_kept(Row& row, std::uint64_t bytes) {
  std::uint64_t before = row.before.load(std::memory_order_relaxed), old = 0;
  do {
    old = std::min(before, bytes);
  } while (!row.before.compare_exchange_weak(before, before - old, std::memory_order_relaxed));
  if (bytes != old) cache_.large().note_faulted(bytes - old);
}

bool MappedFiles::is_all_present(const Row& row) {
  const LargeFile::Range all = range_of(row);
  return cache_.large().present_bytes(*row.file, all) == all.end - all.begin;
}

// Copies those bytes of the mapping that the kernel has. Returns how many it copied.
std::uint64_t MappedFiles::keep(Row& row, int region_fd) {
  if (!row.claim(ClaimedRow::Is::filled)) return 0;
  // If the program has already removed its mapping, this look is the last.
  const bool is_last = row.is_left.load(std::memory_order_acquire);
  // Does not look while a thread brings a part: that thread would leave out the blocks that this
  // look is copying, although the look might have seen only a few of their pages.
  if (!is_last && row.users.load(std::memory_order_seq_cst) != 0) {
    give_back(row);
    return 0;
  }
  std::optional<std::uint64_t> kept = 0;
  if (row.tells_pages && (!is_last || !is_all_present(row)))
    kept = cache_.large().keep_pages(*row.file, row.own, row.begin, region_fd);
  if (kept) {
    if (is_last && row.tells_pages && !row.has_lost_pages.load(std::memory_order_relaxed))
      cache_.large().note_watched();
    count_kept(row, *kept);
    if (*kept != 0 && row.reading == LargeFile::Reading::unknown && !is_last)
      note_reading(row, reading_of(row));
  }
  if (is_last || !kept || is_stopping_.load(std::memory_order_relaxed))
    row.is_over.store(true, std::memory_order_seq_cst);
  give_back(row);
  return kept.value_or(0);
}

// Takes the last look at a mapping that the program has read to its end. It need not wait for the
// next regular look.
void MappedFiles::keep_last(Row& row) {
  row.may_have_part.store(false, std::memory_order_relaxed);
  const auto region_fd = cache_.region().reopen(O_RDWR);
  if (region_fd) keep(row, region_fd->get());
}

// Drops a mapping that the program has unmapped, without checking its pages a last time.
void MappedFiles::drop_left(Row& row) {
  if (!row.is_left.load(std::memory_order_acquire) || !row.claim(ClaimedRow::Is::filled)) return;
  row.is_over.store(true, std::memory_order_seq_cst);
  give_back(row);
}

// A look checks all pages of a mapping, and the file can be huge, so looks may use only a small
// share of the time.
void MappedFiles::look() {
  if (count_.load(std::memory_order_relaxed) == 0 ||
      is_looking_.exchange(true, std::memory_order_acquire))
    return;
  const std::uint64_t began = base::monotonic_ns(),
                      earliest = earliest_look_ns_.load(std::memory_order_relaxed);
  if (began < earliest) {
    if (began >= next_look_ns_.load(std::memory_order_relaxed)) {
      for (Row& row : rows()) drop_left(row);
      next_look_ns_.store(earliest, std::memory_order_relaxed);
    }
  } else if (began >= next_look_ns_.load(std::memory_order_relaxed)) {
    // Each byte is copied only one time, in less than a nanosecond. The check takes the rest of the
    // time.
    std::uint64_t kept = 0, took = 0, looked = 0;
    const auto region_fd = cache_.region().reopen(O_RDWR);
    const std::span<Row> rows = this->rows();
    const std::size_t first = first_to_keep_;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::size_t at = (first + i) % rows.size();
      if (looked > k_longest_look_ns) {
        drop_left(rows[at]);
        continue;
      }
      kept += region_fd ? keep(rows[at], region_fd->get()) : 0;
      took = base::monotonic_ns() - began;
      looked = took - std::min(took, kept);
      first_to_keep_ = (at + 1) % rows.size();
    }
    const std::uint64_t share = looked * k_pause_for_each;
    const std::uint64_t pause = took * (kept != 0 ? k_pause_for_each : 2 * k_pause_for_each);
    earliest_look_ns_.store(began + took + share, std::memory_order_relaxed);
    next_look_ns_.store(
        began + took + std::max(share, std::clamp(pause, k_least_pause_ns, k_most_pause_ns)),
        std::memory_order_relaxed);
  }
  is_looking_.store(false, std::memory_order_release);
}

std::uint64_t MappedFiles::pause_ns() const {
  if (count_.load(std::memory_order_relaxed) == 0) return UINT64_MAX;
  const std::uint64_t now = base::monotonic_ns(),
                      due = next_look_ns_.load(std::memory_order_relaxed);
  const std::uint64_t since = waits_since_ns_.load(std::memory_order_relaxed),
                      look = due > now ? due - now : k_least_pause_ns;
  // The pause grows while the program makes no progress.
  return since == 0 ? look
                    : std::min(look, std::max(k_least_wait_ns, (now - since) / k_wait_share));
}

bool MappedFiles::add(LargeFile& file, Added&& added) {
  Row* const row = claim_any(rows_, ClaimedRow::Is::free);
  if (row == nullptr) return false;
  const auto reached = static_cast<std::uint32_t>(row - rows_) + 1;
  std::uint32_t known = reached_.load(std::memory_order_relaxed);
  while (known < reached && !reached_.compare_exchange_weak(known, reached)) {
  }
  row->file = file.share();
  row->own = std::move(added.own);
  row->begin = added.begin;
  row->tells_pages = added.tells_pages;
  row->reading = LargeFile::Reading::unknown;
  row->next = row->asked = row->wanted_asked = 0;
  row->advice.store(MADV_NORMAL, std::memory_order_relaxed);
  row->wanted.store(0, std::memory_order_relaxed);
  row->wanted_end.store(0, std::memory_order_relaxed);
  row->before.store(added.before, std::memory_order_relaxed);
  const auto from = reinterpret_cast<std::uintptr_t>(added.program_has);
  row->from.store(from, std::memory_order_relaxed);
  row->thread.store(base::sys::raw(SYS_gettid), std::memory_order_relaxed);
  const Faults faults = faults_of_thread();
  row->waited_faults.store(faults.waited, std::memory_order_relaxed);
  row->other_faults.store(faults.others, std::memory_order_relaxed);
  row->began_ns = base::monotonic_ns();
  row->version.store(file.version_hash(), std::memory_order_relaxed);
  row->to.store(from + row->own.size(), std::memory_order_relaxed);
  row->is_left.store(false, std::memory_order_relaxed);
  row->has_lost_pages.store(false, std::memory_order_relaxed);
  row->is_over.store(false, std::memory_order_relaxed);
  row->may_have_part.store(true, std::memory_order_relaxed);
  count_.fetch_add(1, std::memory_order_relaxed);
  give_back(*row);
  news_.notify();
  return true;
}

void MappedFiles::let_go_of(LargeFile& file) {
  for (Row& row : rows()) {
    if (row.claim(ClaimedRow::Is::filled)) give_back(row);
  }
  // A thread that is still using a mapping will see the lock and stop.
  file.own_mappings().wait_for_none();
}

void MappedFiles::opened(const LargeFile& file) {
  if (count_.load(std::memory_order_relaxed) == 0) return;
  for (Row& row : rows()) {
    // A row that another thread has claimed is marked too: it is new, or is being examined.
    const bool is_ours = row.claim(ClaimedRow::Is::filled);
    if (!is_ours || row.file->is_same_file(file))
      row.has_lost_pages.store(true, std::memory_order_relaxed);
    if (is_ours) give_back(row);
  }
}

// The kernel reads about k_one_readahead for a fault. A program that reads sequentially causes many
// more faults that find their page.
void MappedFiles::note_faults(const Row& row) {
  if (row.thread.load(std::memory_order_relaxed) != base::sys::raw(SYS_gettid) ||
      row.advice.load(std::memory_order_relaxed) == MADV_RANDOM)
    return;
  constexpr std::uint64_t k_others_of_jump = 8;
  const Faults faults = faults_of_thread();
  const std::uint64_t waited = faults.waited - row.waited_faults.load(std::memory_order_relaxed),
                      others = faults.others - row.other_faults.load(std::memory_order_relaxed);
  if (others >= waited * k_others_of_jump) return;
  const std::uint64_t version = row.version.load(std::memory_order_relaxed);
  ReadAllOver& file = read_all_over(version);
  if (file.version.exchange(version, std::memory_order_relaxed) != version) {
    file.bytes.store(0, std::memory_order_relaxed);
    file.begun_ns.store(0, std::memory_order_relaxed);
  }
  file.bytes.fetch_add(waited * base::k_one_readahead, std::memory_order_relaxed);
}

MappedFiles::AllOver MappedFiles::all_over(const LargeFile& file) {
  constexpr std::uint64_t k_part_of_file = 20;
  ReadAllOver& read = read_all_over(file.version_hash());
  if (read.version.load(std::memory_order_relaxed) != file.version_hash()) return AllOver::no;
  const std::uint64_t now = base::monotonic_ns();
  std::uint64_t begun = read.begun_ns.load(std::memory_order_relaxed);
  if (now - begun < k_brief_ns) return AllOver::goes_on;
  if (read.bytes.load(std::memory_order_relaxed) < file.size() / k_part_of_file ||
      !read.begun_ns.compare_exchange_strong(begun, now, std::memory_order_relaxed))
    return AllOver::no;
  read.bytes.store(0, std::memory_order_relaxed);
  return AllOver::begins;
}

void MappedFiles::unmapped(const void* at, std::size_t length) {
  const auto from = reinterpret_cast<std::uintptr_t>(at);
  bool is_any = false;
  for (Row& row : rows()) {
    if (row.state() == ClaimedRow::Is::free) continue;
    if (from >= row.to.load(std::memory_order_relaxed) ||
        from + length <= row.from.load(std::memory_order_relaxed))
      continue;
    if (row.is_left.exchange(true, std::memory_order_acq_rel)) continue;
    is_any = true;
    note_faults(row);
  }
  if (!is_any) return;
  // If a look is allowed soon, it copies the pages. If not, the mappings are dropped without a
  // look.
  const std::uint64_t earliest = earliest_look_ns_.load(std::memory_order_relaxed);
  const bool is_soon = earliest <= base::monotonic_ns() + k_least_pause_ns;
  next_look_ns_.store(is_soon ? earliest : 0, std::memory_order_relaxed);
  news_.notify();
}

void MappedFiles::advised(const void* at, std::size_t length, int advice) {
  if (count_.load(std::memory_order_relaxed) == 0) return;
  const auto from = reinterpret_cast<std::uintptr_t>(at), to = from + length;
  for (Row& row : rows()) {
    const std::uintptr_t begin = row.from.load(std::memory_order_relaxed),
                         end = row.to.load(std::memory_order_relaxed);
    if (row.state() == ClaimedRow::Is::free || from >= end || to <= begin) continue;
    if (advice != MADV_WILLNEED) {
      row.advice.store(advice, std::memory_order_relaxed);
    } else {
      const std::uint64_t first = std::max(from, begin) - begin, last = std::min(to, end) - begin;
      if (last - first <= base::k_one_readahead) continue;
      const std::uint64_t wanted = row.wanted.load(std::memory_order_relaxed),
                          wanted_end = row.wanted_end.load(std::memory_order_relaxed);
      const bool goes_on = wanted < wanted_end && first <= wanted_end && last >= wanted;
      row.wanted.store(goes_on ? std::min(first, wanted) : first, std::memory_order_relaxed);
      row.wanted_end.store(goes_on ? std::max(last, wanted_end) : last, std::memory_order_relaxed);
    }
    row.may_have_part.store(true, std::memory_order_relaxed);
  }
  news_.notify();
}

void MappedFiles::drop_all() {
  // A row that is still claimed or has users belongs to a thread that hangs.
  for (Row& row : rows()) {
    if (!row.claim(ClaimedRow::Is::filled)) continue;
    row.is_over.store(true, std::memory_order_seq_cst);
    give_back(row);
  }
}

void MappedFiles::forget() {
  for (Row& row : rows()) {
    // The child does not have the mapping (MADV_DONTFORK).
    row.own.forget();
    if (row.state() == ClaimedRow::Is::filled) row.file->end();
  }
}

}  // namespace cube::prefetch
