// The raw file of the profiler: lines of fields separated by tabs, one section per process, written
// at its end. A file may have several sections (an exec, a PID used again), and a section that is
// cut off is not lost: each line stands for itself. In texts a backslash, a tab and a newline are
// \\, \t and \n.
//
//   cubeshim-profile  3  PID  PARENT  START_NS  END_NS  EVERY  OBSERVES
//   map     a line of /proc/self/maps that can be executed
//   code    NUMBER  LINE  FUNCTION  FILE                          a function of Python
//   site    NUMBER  KIND  EXAMPLE  NATIVE  PYTHON  COUNTS  LATENCY  OPENS
//             NATIVE: addresses in hex, innermost first; PYTHON: numbers of codes; COUNTS:
//             SiteCount; LATENCY: counts of calls that took [2^i, 2^(i+1)) ns; OPENS: OpenCount, of
//             an open alone. Commas between them, "-" for none
//   bin     LEVEL  NUMBER  BUSY_NS  CALLS      time that calls of the origin took in the bin
//   file    HASH  FileCount                    a file that was opened to be read, by its path
//   dropped DropCounts
//   cost    CostCounts
//   end
//
// A bin of a level is bin_width(level) long, and begins at NUMBER times that, of CLOCK_MONOTONIC.
// Thread safety: constants.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace cube::shim::profile {

inline constexpr std::string_view k_raw_head = "cubeshim-profile";
inline constexpr unsigned k_raw_version = 3;

inline constexpr std::size_t k_most_native = 32, k_most_python = 24, k_latency_buckets = 40;
inline constexpr std::size_t k_bins = 1024, k_bin_levels = 7;
// 17 ms, 67 ms, 268 ms ..., so that 1,024 bins cover 17 s to 19 h.
constexpr std::uint64_t bin_width(std::size_t level) { return 1ULL << (24 + 2 * level); }

inline constexpr std::string_view k_kind_names[] = {"open",  "read", "seek", "stat", "access",
                                                    "close", "list", "map",  "lock"};

enum SiteCount : std::size_t {
  k_calls,
  k_bytes,
  k_ns,
  k_origin_calls,
  k_origin_ns,
  k_errors,
  k_tiny,
  k_again,
  k_site_counts
};
// Sums over the files that a site has opened, added when they are closed.
enum OpenCount : std::size_t {
  k_closed,          // files
  k_unread,          // files that were neither read nor mapped nor listed
  k_whole,           // read to their end, each byte at least once
  k_whole_again,     // files that had also been read whole shortly before
  k_whole_again_ns,  // cost of those: the open and the reads
  k_stat_first,      // opened after a stat by path
  k_stat_first_us,   // time of those stats
  k_opened_again,    // opened again shortly after an earlier open, but not read whole both times
  k_opened_again_ns,
  k_storms,      // files with 4 seeks or more and 8 reads or more; a read elsewhere by pread is a
                 // seek, too
  k_storm_ns,    // their reads and seeks
  k_tiny_files,  // files without a seek storm, with 16 reads or more, most of them tiny
  k_tiny_ns,
  k_large,         // seen to be larger than 16 MiB
  k_large_random,  // of these large files, those with 8 reads or more, a third of which do not
                   // begin where the last one ended
  k_large_random_ns,
  k_reads,
  k_seeks,
  k_jumps,  // reads that do not begin where the last one ended
  k_read_bytes,
  k_read_ns,
  k_open_counts
};
// How one file was used, for `cubeshim plan`. Times are those of all its calls: open, read, seek,
// stat, close, map.
enum FileCount : std::size_t {
  k_first_ns,     // monotonic clock: the begin of its first open
  k_last_ns,      // the end of its last call
  k_file_size,    // the largest that was seen; 0: not known
  k_file_bytes,   // read
  k_file_opens,   // to be read
  k_soon_again,   // of those opens, the ones shortly after another open by this process
  k_file_maps,    // closed after they had been mapped
  k_waited,       // opens that waited for another's fetch
  k_from_origin,  // opens that asked the origin, or the kernel
  k_from_tier,    // opens whose bytes came from a tier
  k_file_memory_ns,
  k_file_origin_ns,  // calls that waited, or asked the origin
  k_file_read_ns,    // the part of that time that reads took
  k_file_tier_ns,
  k_file_counts
};
// The profiler's own cost. It times each walk of a stack, and one in k_cost_sample of the calls
// without a walk.
enum CostCount : std::size_t {
  k_samples,        // calls
  k_samples_timed,  // walks that were not interrupted, judging by their duration
  k_sample_ns,      // time of those
  k_stacks,         // native stacks that were walked
  k_stacks_timed,
  k_stack_ns,
  // Cost of one reading of the clock. A call's time leaves out one reading, or two with a walk.
  k_clock_ns,
  k_start_ns,  // start of the profiler in this process
  k_write_ns,  // writing of its file
  k_cost_counts
};
inline constexpr std::uint64_t k_cost_sample = 16;
enum DropCount : std::size_t {
  k_no_site,
  k_no_file,
  k_no_text,
  k_no_code,
  k_no_native,
  k_drop_counts
};

// A read of at most this many bytes is tiny; it is the buffer of libc's streams.
inline constexpr std::size_t k_tiny_read = 4096;

}  // namespace cube::shim::profile
