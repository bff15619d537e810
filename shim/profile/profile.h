// The profiler (CUBESHIM_PROFILE) records each file call below the prefixes with its call site and
// its cost. The exports pass a call to Call if is_on() is true. Invariants: The profiler never
// changes the effect or the result of a call, or errno. Its memory is one mapping of fixed size,
// made at the start; calls that do not fit are counted. The kernel wipes the tables in a forked
// child, which writes a file of its own. Thread-safe. Async-signal-safe, except start(), but not
// reentrant: if a handler interrupts the recorder, the handler's calls are not recorded. The
// recorder takes no locks. Its only malloc is for libunwind's thread-local data, at the first walk
// in a thread.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "cache/base/process/went_out.h"
#include "cache/base/settings/config.h"

struct stat;

namespace cube::shim::profile {

struct Tables;
struct SiteRow;
struct FdRow;

// In the order of k_kind_names in raw_format.h.
enum class Kind : std::uint8_t { open, read, seek, stat, access, close, list, map, lock, k_count };

extern constinit std::atomic<bool> g_on;
// Relaxed suffices, because g_on is set before main, and a thread that sees it late only starts to
// record late. Pairs with start().
inline bool is_on() { return g_on.load(std::memory_order_relaxed); }

// The constructor of the library calls this. Does nothing if the settings do not switch the
// profiler on.
void start(const base::Config& config);
// Call this at the end of the process. Writes the file and ends profiling for good.
void leave();
// Call this before an exec. Writes the file, and empties the tables in case the exec fails.
void before_exec();
// Call before_fork() before a fork, after_fork() in the parent, and become_child() in the child.
void before_fork();
void after_fork();
void become_child();

// The subject of a call: a path or an fd.
struct Subject {
  Kind kind;
  const void* caller;  // the return address of the export
  int fd = -1;         // the fd, or the directory of `path`
  const char* path = nullptr;
  int flags = 0;                      // of an open
  std::size_t wanted = 0;             // bytes of a read or a mapping
  std::int64_t at = -1;               // the offset of a pread
  int whence = 0;                     // of a seek
  const struct ::stat* st = nullptr;  // the answer of a stat
};

// The recording of one call. The class has no destructor, because a thread may be cancelled in the
// call or jump out of it.
class Call {
 public:
  // Returns false if the call is not recorded.
  bool begin(const Subject& subject);
  // `result` is libc's result; -1 means an error.
  void end(const Subject& subject, long result);

 private:
  struct Ending {
    std::uint64_t ns;
    int error;
    base::Way way;
  };
  // Records the call, and measures the time that this takes.
  void record_timed(const Subject& subject, long result, const Ending& ending);
  void record(const Subject& subject, long result, const Ending& ending);
  void note_path(Tables& tables, SiteRow& site, const Subject& subject, FdRow* row, bool failed,
                 std::uint64_t ns) const;

  std::uint64_t start_ns_ = 0;
  std::uint64_t path_hash_ = 0;
  base::Way way_before_ = base::Way::memory;
  bool has_walked_ = false;  // walked a native stack
};

// `copy` refers to the same open file as `fd`.
void note_dup(int fd, int copy);
// Notes that these fds are closed.
void note_closed_from(unsigned first, unsigned last);
// True if this fd refers to a recorded file.
bool is_watched(int fd);

}  // namespace cube::shim::profile
