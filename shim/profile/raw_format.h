// The raw file of the profiler. The file consists of lines with tab-separated fields. Each process
// writes a section when it ends. A file may have several sections (after an exec, or if a PID is
// reused). The lines of a truncated section can still be read, because they do not depend on its
// end. In texts, a backslash, a tab and a newline are written as \\, \t and \n.
//
//   cubeshim-profile  3  PID  PARENT  START_NS  END_NS  EVERY  OBSERVES
//   map     an executable line of /proc/self/maps
//   code    NUMBER  LINE  FUNCTION  FILE                          a function of Python
//   site    NUMBER  KIND  EXAMPLE  NATIVE  PYTHON  COUNTS  LATENCY  OPENS
//             NATIVE: addresses in hex, innermost first; PYTHON: numbers of codes; COUNTS:
//             SiteCount; LATENCY: counts of calls that took [2^i, 2^(i+1)) ns; OPENS: OpenCount, of
//             an open alone. Commas between them, "-" for none
//   bin     LEVEL  NUMBER  BUSY_NS  CALLS      time that calls to the origin took in this bin
//   file    HASH  FileCount                    a file opened for reading; HASH: of its path
//   dropped DropCounts
//   cost    CostCounts
//   end
//
// A bin is bin_width(LEVEL) long and begins at NUMBER * bin_width(LEVEL) of CLOCK_MONOTONIC. Thread
// safety: constants.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace cube::shim::profile {

inline constexpr std::string_view k_raw_head = "cubeshim-profile";
inline constexpr unsigned k_raw_version = 3;

inline constexpr std::size_t k_most_native = 32, k_most_python = 24, k_latency_buckets = 40;
inline constexpr std::size_t k_bins = 1024, k_bin_levels = 7;
// 17 ms, 67 ms, 268 ms ..., so that the 1,024 bins of a level cover 17 s to 19 h.
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
// Sums over the files that a site has opened. A file is added when it is closed.
enum OpenCount : std::size_t {
  k_closed,          // files
  k_unread,          // files that were neither read nor mapped nor listed
  k_whole,           // files read to their end, each byte at least once
  k_whole_again,     // files read whole that had also been read whole shortly before
  k_whole_again_ns,  // time of the open and the reads of these files
  k_stat_first,      // files opened after a stat by path
  k_stat_first_us,   // time of these stats
  k_opened_again,    // files opened again shortly after another open, but not read whole twice
  k_opened_again_ns,
  k_storms,      // files with 4 or more seeks and 8 or more reads; a pread at another offset counts
                 // as a seek
  k_storm_ns,    // time of the reads and seeks of these files
  k_tiny_files,  // files without a seek storm and with 16 or more reads, most of them tiny
  k_tiny_ns,
  k_large,         // files that were seen to exceed 16 MiB
  k_large_random,  // large files with 8 or more reads; a third of the reads do not
                   // begin where the last read ended
  k_large_random_ns,
  k_reads,
  k_seeks,
  k_jumps,  // reads that do not begin where the last read ended
  k_read_bytes,
  k_read_ns,
  k_open_counts
};
// The use of one file, for `cubeshim plan`. Times cover all its calls: open, read, seek, stat,
// close, map.
enum FileCount : std::size_t {
  k_first_ns,     // monotonic clock: the beginning of its first open
  k_last_ns,      // the end of its last call
  k_file_size,    // the largest size that was seen; 0: unknown
  k_file_bytes,   // read
  k_file_opens,   // to be read
  k_soon_again,   // opens shortly after another open of the file by this process
  k_file_maps,    // closes of an fd whose file had been mapped
  k_waited,       // opens that waited for a fetch by another thread or process
  k_from_origin,  // opens that asked the origin or the kernel
  k_from_tier,    // opens whose bytes came from a tier
  k_file_memory_ns,
  k_file_origin_ns,  // time of calls that waited or asked the origin
  k_file_read_ns,    // the part of k_file_origin_ns that reads took
  k_file_tier_ns,
  k_file_counts
};
// The profiler's own cost. The profiler measures the time of each stack walk, and the time of every
// k_cost_sample-th call without a walk.
enum CostCount : std::size_t {
  k_samples,        // calls
  k_samples_timed,  // walks that were not interrupted, judging by their duration
  k_sample_ns,      // time of the timed walks
  k_stacks,         // native stacks that were walked
  k_stacks_timed,
  k_stack_ns,
  // The cost of one clock reading. The time of one reading is subtracted from a call's time. If
  // there was a walk, the time of two readings is subtracted.
  k_clock_ns,
  k_start_ns,  // time to start the profiler in this process
  k_write_ns,  // time to write the raw file
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

// A read of at most this many bytes is tiny. This is the buffer size of libc's streams.
inline constexpr std::size_t k_tiny_read = 4096;

}  // namespace cube::shim::profile
