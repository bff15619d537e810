#include "shim/profile/profile.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <iterator>
#include <utility>

#include "cache/base/clock.h"
#include "cache/base/hash.h"
#include "cache/base/log.h"
#include "cache/base/process/went_out.h"
#include "shim/profile/native_stack.h"
#include "shim/profile/open_rows.h"
#include "shim/profile/profiled_path.h"
#include "shim/profile/python_frames.h"
#include "shim/profile/write_raw.h"

namespace cube::shim::profile {

constinit std::atomic<bool> g_on{false};

namespace {

constinit const base::Config* g_profiled = nullptr;
// The frame of the recorder that runs on this thread, or 0. A jump out of a signal handler may
// leave a stale frame here. A later frame that lies further up the stack shows that the noted frame
// is stale.
constinit thread_local std::uintptr_t t_recorder [[gnu::tls_model("initial-exec")]] = 0;
constinit thread_local std::uint32_t t_calls [[gnu::tls_model("initial-exec")]] = 0;
constinit thread_local std::uint32_t t_not_walked [[gnu::tls_model("initial-exec")]] = 0;
// The duration of the profiler's start in this program; 0 after it was written to the file.
constinit std::uint64_t g_start_ns = 0;

// Prevents recursion. While the recorder runs, calls of libunwind and of signal handlers are not
// recorded.
class Recording {
 public:
  Recording() : here_(reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0))) {
    is_entered_ = t_recorder == 0 || here_ >= t_recorder;
    if (is_entered_) t_recorder = here_;
  }
  ~Recording() {
    if (is_entered_) t_recorder = 0;
  }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  explicit operator bool() const { return is_entered_; }

 private:
  const std::uintptr_t here_;
  bool is_entered_;
};

// If a fork that bypassed libc has wiped the tables, prepares them again.
Tables* tables_in_use() {
  Tables* const tables = g_tables.load(std::memory_order_acquire);
  if (tables != nullptr && tables->magic.load(k_relaxed) == 0) [[unlikely]]
    become_child();
  return tables;
}

// True if the error shows that the kernel has read the path. After other errors, the path may point
// to unreadable memory.
bool has_read_path(int error) {
  constexpr int k_errors[] = {ENOENT, EACCES, ENOTDIR, EEXIST, EISDIR,
                              ELOOP,  EROFS,  EIO,     ESTALE, ETIMEDOUT};
  return std::find(std::begin(k_errors), std::end(k_errors), error) != std::end(k_errors);
}

bool is_to_be_read(int open_flags) { return (open_flags & (O_ACCMODE | O_PATH)) == O_RDONLY; }

// Returns the row of the call site. Walks the native stack, or uses the row of the last call with
// the same caller and the same Python functions.
SiteRow* find_site(Tables& tables, Kind kind, const void* caller, bool& has_walked) {
  Stack stack;
  python::walk(tables, stack);
  const auto number = static_cast<std::uint32_t>(kind);
  std::uint64_t quick = reinterpret_cast<std::uintptr_t>(caller) * 0x9e3779b97f4a7c15ULL + number;
  for (std::uint32_t i = 0; i < stack.pythons; ++i)
    quick = (quick ^ (quick >> 29)) * 0xbf58476d1ce4e5b9ULL + stack.python[i];
  quick ^= quick >> 32;
  auto& known = tables.quick[quick % Tables::k_quick];
  const std::uint64_t word = known.load(k_relaxed);
  const std::uint64_t high = quick >> 32 << 32;
  // The caller of an open is unknown. Without Python functions, nothing would distinguish two call
  // sites.
  const bool is_told = caller != nullptr || stack.pythons != 0;
  if (is_told && word != 0 && word >> 32 << 32 == high &&
      ++t_calls % g_profiled->profile_every != 0)
    return &tables.sites[(word & 0xffffffff) - 1];
  has_walked = true;
  if (!native::walk(stack)) add(tables.dropped[k_no_native], 1);
  SiteRow* const row = site_of(tables, number, stack);
  if (row != nullptr)
    known.store(high | (static_cast<std::uint64_t>(row - tables.sites.data()) + 1), k_relaxed);
  return row;
}

// Not inlined, because a path needs 4 KiB of stack, and libunwind must not run on top of that.
// Returns 0 if the call is not recorded.
__attribute__((noinline)) std::uint64_t hash_of_path(const Subject& subject) {
  ProfiledPath path;
  if (!path.find(*g_profiled, subject.fd, subject.path)) return 0;
  return std::max<std::uint64_t>(base::hash_path(path.text()), 1);
}
__attribute__((noinline)) std::uint32_t keep_path(Tables& tables, const Subject& subject) {
  ProfiledPath path;
  return path.find(*g_profiled, subject.fd, subject.path) ? keep_text(tables, path.text()) : 0;
}

// Returns the time of the shortest of several trials, which was the least disturbed.
std::uint64_t time_of_a_clock_reading() {
  constexpr std::uint64_t k_trials = 8, k_readings = 8;
  std::uint64_t least_ns = UINT64_MAX;
  for (std::uint64_t trial = 0; trial < k_trials; ++trial) {
    const std::uint64_t begin_ns = base::monotonic_ns();
    std::uint64_t end_ns = begin_ns;
    for (std::uint64_t i = 0; i < k_readings; ++i) end_ns = base::monotonic_ns();
    least_ns = std::min(least_ns, (end_ns - begin_ns) / k_readings);
  }
  return least_ns;
}

bool write_all(Tables& tables) {
  tables.cost[k_clock_ns].store(time_of_a_clock_reading(), k_relaxed);
  tables.cost[k_start_ns].store(g_start_ns, k_relaxed);
  g_start_ns = 0;
  return write_raw(tables, *g_profiled);
}

bool is_recording() {
  return t_recorder != 0 &&
         reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)) < t_recorder;
}

struct TimedCall {
  Kind kind;
  bool has_failed;
  std::size_t bytes;
  base::Way way;
  std::uint64_t begin_ns, end_ns;
};

void count_call(Tables& tables, SiteRow& site, const TimedCall& call) {
  const std::uint64_t ns = call.end_ns - call.begin_ns;
  add(site.counts[k_calls], 1);
  add(site.counts[k_ns], ns);
  if (call.bytes != 0) add(site.counts[k_bytes], call.bytes);
  if (call.has_failed) add(site.counts[k_errors], 1);
  if (call.kind == Kind::read && call.bytes != 0 && call.bytes <= k_tiny_read)
    add(site.counts[k_tiny], 1);
  if (call.way != base::Way::memory) {
    add(site.counts[k_origin_calls], 1);
    add(site.counts[k_origin_ns], ns);
    add_to_time_line(tables, call.begin_ns, call.end_ns);
  }
  const auto bucket = ns == 0 ? 0 : std::bit_width(ns) - 1;
  site.latency[std::min<std::size_t>(static_cast<std::size_t>(bucket), k_latency_buckets - 1)]
      .fetch_add(1, k_relaxed);
}

void note_on_fd(FdRow& row, const Subject& subject, long result, std::size_t bytes,
                std::uint64_t ns) {
  if (subject.kind == Kind::seek) return note_seek(row, subject.at, subject.whence, result, ns);
  if (result == -1) return;
  if (subject.kind == Kind::read) note_read(row, subject.at, subject.wanted, bytes, ns);
  if (subject.kind == Kind::map) row.flags.fetch_or(k_mapped, k_relaxed);
  if (subject.kind == Kind::stat && subject.st != nullptr && S_ISREG(subject.st->st_mode))
    note_size(row, static_cast<std::uint64_t>(subject.st->st_size));
}

}  // namespace

void start(const base::Config& config) {
  if (config.profile.empty()) return;
  if (config.prefixes.empty() && !config.profile_all) {
    base::log(base::LogLevel::warn,
              "CUBESHIM_PROFILE: there is no prefix to record: set CUBESHIM_PREFIXES, or "
              "CUBESHIM_PROFILE_ALL=1");
    return;
  }
  Tables* const tables = make_tables();
  if (tables == nullptr) {
    base::log(base::LogLevel::warn, "CUBESHIM_PROFILE: no memory for the tables of the profiler");
    return;
  }
  const std::uint64_t begin_ns = tables->start_ns;
  g_profiled = &config;
  note_raw_file(config);
  g_tables.store(tables, std::memory_order_release);
  const Recording recording;
  python::start();
  native::start();
  g_start_ns = base::monotonic_ns() - begin_ns;
  g_on.store(true, std::memory_order_release);
}

void leave() {
  if (!g_on.exchange(false, std::memory_order_acq_rel)) return;
  const Recording recording;
  Tables* const tables = tables_in_use();
  end_all(*tables);
  write_all(*tables);
}

void before_exec() {
  if (!is_on()) return;
  const Recording recording;
  Tables* const tables = tables_in_use();
  if (write_all(*tables)) start_over(*tables);
}

void before_fork() {
  if (is_on()) native::before_fork();
}

void after_fork() { native::after_fork(); }

void become_child() {
  Tables* const tables = g_tables.load(std::memory_order_acquire);
  if (tables == nullptr) return;
  t_recorder = 0;
  g_start_ns = 0;
  native::become_child();
  forget_writer();
  start_over(*tables);
}

bool is_watched(int fd) {
  Tables* const tables = is_on() ? tables_in_use() : nullptr;
  const FdRow* const row = tables != nullptr ? row_of_fd(*tables, fd) : nullptr;
  return row != nullptr && row->file.load(k_relaxed) != 0;
}

void note_dup(int fd, int copy) {
  Tables* const tables = is_on() && copy >= 0 && fd != copy ? tables_in_use() : nullptr;
  FdRow* const to = tables != nullptr ? row_of_fd(*tables, copy) : nullptr;
  if (to == nullptr) return;
  FdRow* const from = row_of_fd(*tables, fd);
  end_open(*tables, *to);
  if (from == nullptr || from->file.load(std::memory_order_acquire) == 0) return;
  begin_copy(*tables, *from, *to);
}

void note_closed_from(unsigned first, unsigned last) {
  Tables* const tables = is_on() ? tables_in_use() : nullptr;
  if (tables == nullptr) return;
  for (std::size_t i = first; i <= last && i < Tables::k_fds; ++i) {
    if (tables->fds[i].file.load(k_relaxed) != 0) end_open(*tables, tables->fds[i]);
  }
}

bool Call::begin(const Subject& subject) {
  Tables* const tables = tables_in_use();
  if (tables == nullptr || is_recording()) return false;
  if (subject.path == nullptr) {
    FdRow* const row = row_of_fd(*tables, subject.fd);
    path_hash_ = row != nullptr ? row->file.load(std::memory_order_acquire) : 0;
    if (path_hash_ == 0) return false;
    // After the close, the fd may belong to another thread.
    if (subject.kind == Kind::close) end_open(*tables, *row);
  }
  way_before_ = std::exchange(base::t_way, base::Way::memory);
  start_ns_ = base::monotonic_ns();
  return true;
}

void Call::end(const Subject& subject, long result) {
  const int saved_errno = errno;
  const std::uint64_t end_ns = base::monotonic_ns();
  const base::Way way = base::t_way;
  base::note_way_out(way_before_);
  if (const Recording recording; recording && is_on())
    record_timed(subject, result, {end_ns, saved_errno, way});
  errno = saved_errno;
}

void Call::record_timed(const Subject& subject, long result, const Ending& ending) {
  record(subject, result, ending);
  if (!has_walked_ && ++t_not_walked % k_cost_sample != 0) return;
  // A longer time means that other threads interrupted the call.
  constexpr std::uint64_t k_longest_ns = 20'000, k_longest_walk_ns = 5'000'000;
  auto& cost = tables_in_use()->cost;
  const std::uint64_t ns = base::monotonic_ns() - ending.ns;
  add(cost[has_walked_ ? k_stacks : k_samples], 1);
  if (ns > (has_walked_ ? k_longest_walk_ns : k_longest_ns)) return;
  add(cost[has_walked_ ? k_stacks_timed : k_samples_timed], 1);
  add(cost[has_walked_ ? k_stack_ns : k_sample_ns], ns);
}

void Call::record(const Subject& subject, long result, const Ending& ending) {
  const auto [end_ns, error, way] = ending;
  Tables* const tables = tables_in_use();
  const bool failed = result == -1;
  const std::uint64_t ns = end_ns - start_ns_;
  FdRow* row = nullptr;
  if (subject.path != nullptr) {
    const bool opens = subject.kind == Kind::open || subject.kind == Kind::list;
    if (opens && !failed) row = row_of_fd(*tables, static_cast<int>(result));
    // If the row is in use, the fd was closed by a call that the profiler did not see.
    if (row != nullptr) end_open(*tables, *row);
    path_hash_ = failed && !has_read_path(error) ? 0 : hash_of_path(subject);
    if (path_hash_ == 0) return;
  } else {
    row = row_of_fd(*tables, subject.fd);
    if (row->file.load(k_relaxed) != path_hash_) row = nullptr;
  }
  SiteRow* const site = find_site(*tables, subject.kind, subject.caller, has_walked_);
  if (site == nullptr) return;
  const bool moves_bytes = subject.kind == Kind::read || subject.kind == Kind::map;
  const std::size_t bytes = failed || !moves_bytes      ? 0
                            : subject.kind == Kind::map ? subject.wanted
                                                        : static_cast<std::size_t>(result);
  count_call(*tables, *site,
             {.kind = subject.kind,
              .has_failed = failed,
              .bytes = bytes,
              .way = way,
              .begin_ns = start_ns_,
              .end_ns = end_ns});
  if (subject.path != nullptr && site->example.load(k_relaxed) == 0)
    site->example.store(keep_path(*tables, subject), k_relaxed);
  // For an open, the row still describes the earlier file of its fd.
  const bool is_of_directory = subject.kind == Kind::list || (subject.flags & O_DIRECTORY) != 0 ||
                               (subject.path == nullptr && row != nullptr &&
                                (row->flags.load(k_relaxed) & k_directory) != 0);
  if (!failed && !is_of_directory)
    note_use(*tables, path_hash_,
             {.is_open = subject.kind == Kind::open && is_to_be_read(subject.flags),
              .is_read = subject.kind == Kind::read,
              .way = way,
              .begin_ns = start_ns_,
              .end_ns = end_ns,
              .bytes = bytes});
  if (subject.path != nullptr) return note_path(*tables, *site, subject, row, failed, ns);
  if (row == nullptr) return;
  // The path of an fd is not stored. The first path that was opened at the site of the fd's open is
  // reported instead.
  if (site->example.load(k_relaxed) == 0)
    site->example.store(tables->sites[row->site.load(k_relaxed)].example.load(k_relaxed),
                        k_relaxed);
  note_on_fd(*row, subject, result, bytes, ns);
}

void Call::note_path(Tables& tables, SiteRow& site, const Subject& subject, FdRow* row, bool failed,
                     std::uint64_t ns) const {
  const bool is_list = subject.kind == Kind::list;
  if (row != nullptr) {
    const auto number = static_cast<std::uint32_t>(&site - tables.sites.data());
    const bool is_directory = is_list || (subject.flags & O_DIRECTORY) != 0;
    begin_open(tables, *row, path_hash_, number,
               (is_directory ? std::uint32_t{k_directory} : 0U) |
                   (is_to_be_read(subject.flags) ? 0U : std::uint32_t{k_other_use}));
    row->open_ns.store(ns, k_relaxed);
  }
  if (failed) return;
  FileRow* const file = is_list || subject.kind == Kind::stat || subject.kind == Kind::access
                            ? file_of(tables, path_hash_)
                            : nullptr;
  if (file == nullptr) return;
  if (is_list) {
    if (file->lists.fetch_add(1, k_relaxed) != 0) add(site.counts[k_again], 1);
  } else {
    file->stats_since_open.fetch_add(1, k_relaxed);
    file->stat_us.fetch_add(
        static_cast<std::uint32_t>(std::min<std::uint64_t>(ns / 1000, 1U << 20)), k_relaxed);
  }
}

}  // namespace cube::shim::profile
