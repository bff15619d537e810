// The memory of the profiler: fixed hash tables with open addressing, in one private mapping that
// the kernel wipes in a forked child (MADV_WIPEONFORK). A row of zeros is empty. A thread takes a
// row by a compare-and-swap of the row's key; rows are never freed. Counters are relaxed, because
// no other data depend on them. `ready` is stored with release, and loaded with acquire before a
// thread reads the row's plain fields. Thread-safe and async-signal-safe.
#pragma once

#include <array>
#include <atomic>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "cache/base/process/went_out.h"
#include "shim/profile/raw_format.h"

namespace cube::shim::profile {

inline constexpr auto k_relaxed = std::memory_order_relaxed;
using Count = std::atomic<std::uint64_t>;
inline void add(Count& counter, std::uint64_t n) {
  counter.fetch_add(n, std::memory_order_relaxed);
}

// The stacks that lead to a call. The stacks and the kind of a call identify a call site.
struct Stack {
  std::array<std::uintptr_t, k_most_native> native{};
  std::array<std::uint32_t, k_most_python> python{};  // rows of the code table, innermost first
  std::uint32_t natives = 0, pythons = 0;
};

struct SiteRow {
  std::atomic<std::uint64_t> key;
  std::atomic<std::uint32_t> ready;
  std::atomic<std::uint32_t> example;  // a path; an index of `strings`
  std::uint32_t kind;
  Stack stack;
  std::array<Count, k_site_counts> counts;  // SiteCount
  std::array<Count, k_open_counts> opens;   // OpenCount, if the site opens files
  std::array<std::atomic<std::uint32_t>, k_latency_buckets> latency;
};

struct FileRow {
  std::atomic<std::uint64_t> key;  // the hash of the path
  std::atomic<std::uint32_t> lists, stats_since_open, stat_us, last_open, last_whole;
  std::array<Count, k_file_counts> counts;  // FileCount
};

struct CodeRow {
  std::atomic<std::uint64_t> key;
  std::atomic<std::uint32_t> ready;
  std::uint32_t name, file, line;
};

// The row of an fd that refers to an open file.
struct FdRow {
  std::atomic<std::uint64_t> file;  // the hash of its path; 0: not watched
  std::atomic<std::uint32_t> site;  // the call site of its open
  std::atomic<std::uint32_t> flags;
  std::atomic<std::uint32_t> copy_of;  // the copied fd + 1; 0: this fd is no copy
  std::atomic<std::uint32_t> reads, seeks, tiny, jumps;
  Count bytes, position, last_end, size, ns, open_ns;
};
// k_other_use: the file was not opened only for reading.
enum FdFlag : std::uint32_t {
  k_saw_end = 1,
  k_mapped = 2,
  k_directory = 4,
  k_sized = 8,
  k_was_open = 16,
  k_has_copy = 32,
  k_other_use = 64
};

struct Bin {
  Count busy_ns, calls;
};

struct Tables {
  static constexpr std::size_t k_sites = 4096, k_files = 1 << 18, k_codes = 4096, k_fds = 1 << 16,
                               k_strings = 4 << 20;
  static constexpr std::size_t k_quick = 8192, k_buffer = 1 << 16;

  std::atomic<std::uint32_t> magic;  // 0: a fork has wiped the tables
  std::atomic<std::uint32_t> string_end;
  std::atomic<std::uint32_t> opens;  // the number of opens of watched files so far
  std::uint64_t start_ns;
  std::array<Count, k_drop_counts> dropped;  // DropCount
  std::array<Count, k_cost_counts> cost;     // CostCount
  std::array<SiteRow, k_sites> sites;
  std::array<CodeRow, k_codes> codes;
  std::array<std::atomic<std::uint64_t>, k_quick>
      quick;  // high half: from the key; low half: the site's row + 1
  std::array<std::array<Bin, k_bins>, k_bin_levels> bins;
  std::array<FdRow, k_fds> fds;
  std::array<FileRow, k_files> files;
  std::array<char, k_strings> strings;
  // Buffers of the writer, which may run on a small stack.
  std::array<char, k_buffer> buffer;
  std::array<char, 2 * PATH_MAX> maps;
  char path[PATH_MAX];
};

// Null before start().
extern constinit std::atomic<Tables*> g_tables;

// Makes the mapping. Returns null if there is no memory.
Tables* make_tables();
// Empties the tables, in a forked child and after the write before an exec.
void start_over(Tables& tables);

// Copies the text. Returns the position of the copy for text_at(), or 0 if there is no room.
std::uint32_t keep_text(Tables& tables, std::string_view text);
inline const char* text_at(const Tables& tables, std::uint32_t at) {
  return at != 0 ? &tables.strings[at] : "";
}

// site_of and file_of return the row of this site or file, and make the row if necessary. They
// return null if the table is full.
SiteRow* site_of(Tables& tables, std::uint32_t kind, const Stack& stack);
FileRow* file_of(Tables& tables, std::uint64_t path_hash);

// Returns the row with this key. If there is no such row, takes a free row and sets `is_new`.
// Returns null if there is no free row near the place of the key.
template <typename Row, std::size_t N>
Row* find_row(std::array<Row, N>& rows, std::uint64_t key, bool& is_new) {
  constexpr std::size_t k_most_steps = 64;
  is_new = false;
  for (std::size_t i = 0; i < k_most_steps; ++i) {
    Row& row = rows[(key + i) % N];
    std::uint64_t there = row.key.load(std::memory_order_acquire);
    if (there == key) return &row;
    if (there != 0) continue;
    if (row.key.compare_exchange_strong(there, key, std::memory_order_acq_rel)) {
      is_new = true;
      return &row;
    }
    if (there == key) return &row;
  }
  return nullptr;
}

// Adds the time of one call to the origin to the bins of the time line.
void add_to_time_line(Tables& tables, std::uint64_t begin_ns, std::uint64_t end_ns);

}  // namespace cube::shim::profile
