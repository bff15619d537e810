#include "shim/profile/open_rows.h"

#include <unistd.h>

#include <algorithm>

namespace cube::shim::profile {
namespace {

constexpr std::uint32_t k_soon = 3;        // a file that is opened again after at most this many
                                           // opens belongs to the same item
constexpr std::uint32_t k_few_opens = 16;  // reads with this few opens between are one epoch
constexpr std::uint64_t k_large_bytes = 16 << 20;  // the default of CUBESHIM_MAX_FILE

void make_empty(FdRow& row, std::uint32_t site, std::uint32_t flags) {
  row.site.store(site, k_relaxed);
  row.flags.store(flags, k_relaxed);
  for (auto* const count : {&row.copy_of, &row.reads, &row.seeks, &row.tiny, &row.jumps})
    count->store(0, k_relaxed);
  for (auto* const count :
       {&row.bytes, &row.position, &row.last_end, &row.size, &row.ns, &row.open_ns})
    count->store(0, k_relaxed);
}

// Returns the row of the fd of which `copy` is a dup, or null if that fd is no longer open.
FdRow* original_of(Tables& tables, const FdRow& copy, std::uint64_t path_hash) {
  const std::uint32_t number = copy.copy_of.load(k_relaxed);
  if (number == 0) return nullptr;
  FdRow& row = tables.fds[number - 1];
  return row.file.load(std::memory_order_acquire) == path_hash ? &row : nullptr;
}

void add_to_original(FdRow& original, const FdRow& copy) {
  original.reads.fetch_add(copy.reads.load(k_relaxed), k_relaxed);
  original.seeks.fetch_add(copy.seeks.load(k_relaxed), k_relaxed);
  original.tiny.fetch_add(copy.tiny.load(k_relaxed), k_relaxed);
  original.jumps.fetch_add(copy.jumps.load(k_relaxed), k_relaxed);
  original.flags.fetch_or(copy.flags.load(k_relaxed) & (k_saw_end | k_mapped | k_sized), k_relaxed);
  add(original.bytes, copy.bytes.load(k_relaxed));
  add(original.ns, copy.ns.load(k_relaxed));
  original.size.store(std::max(original.size.load(k_relaxed), copy.size.load(k_relaxed)),
                      k_relaxed);
}

// Notes that the whole file has been read. Returns true if it had also been read whole a few opens
// ago.
bool note_whole(Tables& tables, std::uint64_t path_hash) {
  FileRow* const file = file_of(tables, path_hash);
  if (file == nullptr) return false;
  const std::uint32_t now = tables.opens.load(k_relaxed);
  const std::uint32_t last = file->last_whole.exchange(now, k_relaxed);
  return last != 0 && now - last <= k_few_opens;
}

}  // namespace

void begin_copy(Tables& tables, FdRow& from, FdRow& to) {
  const std::uint32_t kept = k_directory | k_sized | k_other_use;
  make_empty(to, from.site.load(k_relaxed), (from.flags.load(k_relaxed) & kept) | k_has_copy);
  to.position.store(from.position.load(k_relaxed), k_relaxed);
  to.last_end.store(from.last_end.load(k_relaxed), k_relaxed);
  to.size.store(from.size.load(k_relaxed), k_relaxed);
  to.copy_of.store(static_cast<std::uint32_t>(&from - tables.fds.data()) + 1, k_relaxed);
  from.flags.fetch_or(k_has_copy, k_relaxed);
  to.file.store(from.file.load(k_relaxed), std::memory_order_release);
}

void begin_open(Tables& tables, FdRow& row, std::uint64_t path_hash, std::uint32_t site,
                std::uint32_t flags) {
  make_empty(row, site, flags);
  row.file.store(path_hash, std::memory_order_release);
  const std::uint32_t now = tables.opens.fetch_add(1, k_relaxed) + 1;
  FileRow* const file = (flags & k_directory) != 0 ? nullptr : file_of(tables, path_hash);
  if (file == nullptr) return;
  const std::uint32_t last = file->last_open.exchange(now, k_relaxed);
  if (last != 0 && now - last <= k_few_opens) row.flags.fetch_or(k_was_open, k_relaxed);
  if (last != 0 && now - last <= k_soon && (flags & k_other_use) == 0)
    add(file->counts[k_soon_again], 1);
  if (file->stats_since_open.load(k_relaxed) == 0) return;
  file->stats_since_open.store(0, k_relaxed);
  add(tables.sites[site].opens[k_stat_first], 1);
  add(tables.sites[site].opens[k_stat_first_us], file->stat_us.exchange(0, k_relaxed));
}

void note_use(Tables& tables, std::uint64_t path_hash, const FileUse& use) {
  FileRow* const file = file_of(tables, path_hash);
  if (file == nullptr) return;
  auto& counts = file->counts;
  const bool is_memory = use.way == base::Way::memory, is_tier = use.way == base::Way::tier;
  const std::uint64_t ns = use.end_ns - use.begin_ns;
  add(counts[is_memory ? k_file_memory_ns : is_tier ? k_file_tier_ns : k_file_origin_ns], ns);
  // If threads store this out of order, the error is smaller than the time of one call.
  counts[k_last_ns].store(use.end_ns, k_relaxed);
  if (use.is_read) {
    add(counts[k_file_bytes], use.bytes);
    if (!is_memory && !is_tier) add(counts[k_file_read_ns], ns);
  }
  if (!use.is_open) return;
  std::uint64_t none = 0;
  counts[k_first_ns].compare_exchange_strong(none, use.begin_ns, k_relaxed);
  add(counts[k_file_opens], 1);
  if (!is_memory)
    add(counts[is_tier ? k_from_tier : use.way == base::Way::origin ? k_from_origin : k_waited], 1);
}

void note_read(FdRow& row, std::int64_t at, std::size_t wanted, std::size_t got, std::uint64_t ns) {
  const std::uint64_t from =
      at >= 0 ? static_cast<std::uint64_t>(at) : row.position.load(k_relaxed);
  const bool is_first = row.reads.fetch_add(1, k_relaxed) == 0;
  if (from != row.last_end.load(k_relaxed) && !is_first && got != 0) {
    row.jumps.fetch_add(1, k_relaxed);
    if (at >= 0) row.seeks.fetch_add(1, k_relaxed);
  }
  if (got != 0 && got <= k_tiny_read) row.tiny.fetch_add(1, k_relaxed);
  if (got < wanted) row.flags.fetch_or(k_saw_end, k_relaxed);
  if (at < 0) row.position.store(from + got, k_relaxed);
  if (got != 0) row.last_end.store(from + got, k_relaxed);
  // If the program has not asked for the size, the end of the read is a lower bound of the size.
  if (from + got > row.size.load(k_relaxed)) row.size.store(from + got, k_relaxed);
  add(row.bytes, got);
  add(row.ns, ns);
}

void note_size(FdRow& row, std::uint64_t size) {
  row.size.store(size, k_relaxed);
  row.flags.fetch_or(k_sized, k_relaxed);
}

void note_seek(FdRow& row, std::int64_t offset, int whence, std::int64_t result, std::uint64_t ns) {
  add(row.ns, ns);
  if (result < 0) return;
  if (whence == SEEK_END && offset == 0) note_size(row, static_cast<std::uint64_t>(result));
  // lseek(fd, 0, SEEK_CUR) only asks for the position.
  if (whence != SEEK_CUR || offset != 0) row.seeks.fetch_add(1, k_relaxed);
  row.position.store(static_cast<std::uint64_t>(result), k_relaxed);
}

void end_open(Tables& tables, FdRow& row) {
  const std::uint64_t path_hash = row.file.exchange(0, std::memory_order_acq_rel);
  const std::uint32_t flags = row.flags.load(k_relaxed);
  if (path_hash == 0 || (flags & k_directory) != 0) return;
  if (FdRow* const original = original_of(tables, row, path_hash); original != nullptr)
    return add_to_original(*original, row);
  if (FileRow* const file = file_of(tables, path_hash); file != nullptr) {
    Count& size = file->counts[k_file_size];
    size.store(std::max(size.load(k_relaxed), row.size.load(k_relaxed)), k_relaxed);
    if ((flags & k_mapped) != 0) add(file->counts[k_file_maps], 1);
  }
  // If this fd has a copy or is a copy, the program may have read the other fd instead.
  if ((flags & (k_has_copy | k_mapped)) == k_has_copy && row.reads.load(k_relaxed) == 0) return;
  auto& counts = tables.sites[row.site.load(k_relaxed)].opens;
  const std::uint64_t reads = row.reads.load(k_relaxed), seeks = row.seeks.load(k_relaxed),
                      tiny = row.tiny.load(k_relaxed);
  const std::uint64_t jumps = row.jumps.load(k_relaxed), bytes = row.bytes.load(k_relaxed),
                      size = row.size.load(k_relaxed);
  const std::uint64_t ns = row.ns.load(k_relaxed);
  add(counts[k_closed], 1);
  add(counts[k_reads], reads);
  add(counts[k_seeks], seeks);
  add(counts[k_jumps], jumps);
  add(counts[k_read_bytes], bytes);
  add(counts[k_read_ns], ns);
  if (bytes == 0 && (flags & (k_mapped | k_saw_end | k_other_use)) == 0) add(counts[k_unread], 1);
  // Whether the program has read the whole file is known only if the size is known, or if a read
  // reached the end.
  const bool is_whole = bytes != 0 && bytes >= size && (flags & (k_sized | k_saw_end)) != 0 &&
                        (flags & k_mapped) == 0;
  if (is_whole) add(counts[k_whole], 1);
  const bool is_whole_again = is_whole && note_whole(tables, path_hash);
  if (is_whole_again) {
    add(counts[k_whole_again], 1);
    add(counts[k_whole_again_ns], ns + row.open_ns.load(k_relaxed));
  }
  if ((flags & k_was_open) != 0 && !is_whole_again) {
    add(counts[k_opened_again], 1);
    add(counts[k_opened_again_ns], row.open_ns.load(k_relaxed));
  }
  const bool is_large = size > k_large_bytes,
             is_random = is_large && reads >= 8 && jumps * 3 >= reads;
  const bool is_storm = seeks >= 4 && reads >= 8 && !is_random;
  if (is_storm) {
    add(counts[k_storms], 1);
    add(counts[k_storm_ns], ns);
  }
  if (reads >= 16 && tiny * 2 > reads && !is_storm) {
    add(counts[k_tiny_files], 1);
    add(counts[k_tiny_ns], ns);
  }
  if (is_large) add(counts[k_large], 1);
  if (is_random) {
    add(counts[k_large_random], 1);
    add(counts[k_large_random_ns], ns);
  }
}

void end_all(Tables& tables) {
  if (tables.opens.load(k_relaxed) == 0) return;
  // The rows end in reverse order, so that copies, which usually have higher fds, end before their
  // originals.
  for (auto row = tables.fds.rbegin(); row != tables.fds.rend(); ++row) {
    if (row->file.load(k_relaxed) != 0) end_open(tables, *row);
  }
}

}  // namespace cube::shim::profile
