#include "shim/calls/loaded_calls.h"

#include <dlfcn.h>
#include <sched.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <new>
#include <string_view>

#include "cache/base/clock.h"
#include "cache/base/log.h"
#include "cache/base/process/high_fd.h"
#include "cache/base/process/signal_frame.h"
#include "shim/calls/loaded_slots.h"
#include "shim/calls/past_libc.h"
#include "shim/fd/fd_table.h"
#include "shim/fd/materialize.h"
#include "shim/fd/placeholder.h"
#include "shim/process/c_result.h"
#include "shim/process/process.h"
#include "shim/profile/loader_lock.h"
#include "shim/profile/native_stack.h"

namespace cube::shim::loaded_calls {
namespace {

namespace sys = base::sys;
using loaded_slots::Found;

// A row for each call that a library may make on an fd that other code has opened. `way` says how
// to test whether such a call reaches this library.
enum class Way : std::uint8_t { read, pread, seek, stat, map, none };
struct Call {
  std::string_view name;
  Way way;
};
constexpr Call k_calls[] = {
    {"read", Way::read},     {"__read", Way::read},     {"pread", Way::pread},
    {"pread64", Way::pread}, {"lseek", Way::seek},      {"lseek64", Way::seek},
    {"fstat", Way::stat},    {"fstat64", Way::stat},    {"mmap", Way::map},
    {"mmap64", Way::map},    {"__read_chk", Way::none}, {"__pread_chk", Way::none},
    {"readv", Way::none},    {"preadv", Way::none},     {"preadv64", Way::none},
};
constexpr std::string_view k_beginnings = "r_plfm";

const Call* call_of(const char* name) {
  if (k_beginnings.find(*name) == std::string_view::npos) return nullptr;
  const auto* const found = std::find_if(std::begin(k_calls), std::end(k_calls),
                                         [&](const Call& c) { return c.name == name; });
  return found != std::end(k_calls) ? found : nullptr;
}

// The function that a program's call of read() reaches. The order of the libraries before libc
// never changes.
constinit std::uintptr_t g_first_read = 0;

// Functions of other libraries that call this library. Guarded by g_is_looking.
constinit std::uintptr_t g_good[64] = {};
constinit std::atomic<bool> g_is_looking{false};
constinit std::atomic<std::uint64_t> g_next_ns{0};
// True once the program has called dlopen with RTLD_DEEPBIND.
constinit std::atomic<bool> g_has_own_scopes{false};

// The record of the test file. Its path is a directory, so no file of the origin can be mistaken
// for it.
struct TrialRecord {
  cache::Record head{};
  char path[8] = "/";
  std::byte data[8] = {};
};
constinit TrialRecord g_trial;

// A served file of one byte. It is marked as changed, so that a call that reaches this library
// materializes it.
class TrialFile {
 public:
  TrialFile() {
    OpenFileRef file = open_files::make();
    fd_ = file ? placeholder::acquire(base::k_high_fd) : -1;
    if (fd_ < 0 || !g_fds.is_within(fd_)) return;
    g_trial.head.path_length = 1;
    g_trial.head.data_size = 1;
    g_trial.head.data_offset = offsetof(TrialRecord, data);
    g_trial.head.stale.store(cache::Record::k_changed, std::memory_order_relaxed);
    file->kind = OpenFile::Kind::served;
    file->record = &g_trial.head;
    file->data = g_trial.data;
    file->size = 1;
    file->flags = O_RDONLY;
    g_fds.set(fd_, RowKind::served, std::move(file), /*close_on_exec=*/true);
  }
  ~TrialFile() {
    if (fd_ < 0) return;
    g_fds.take(fd_);
    sys::close(fd_);
    placeholder::note_freed(fd_);
  }
  TrialFile(const TrialFile&) = delete;
  TrialFile& operator=(const TrialFile&) = delete;
  explicit operator bool() const { return fd_ >= 0 && g_fds.kind(fd_) == RowKind::served; }
  int fd() const { return fd_; }

 private:
  int fd_ = -1;
};

bool comes_to_us(const Found& found) {
  const TrialFile file;
  if (!file) return true;
  const int fd = file.fd();
  char byte = 0;
  struct ::stat st {};
  void* mapped = MAP_FAILED;
  switch (call_of(found.name)->way) {
    case Way::read:
      reinterpret_cast<ssize_t (*)(int, void*, std::size_t)>(found.function)(fd, &byte, 1);
      break;
    case Way::pread:
      reinterpret_cast<ssize_t (*)(int, void*, std::size_t, off_t)>(found.function)(fd, &byte, 1,
                                                                                    0);
      break;
    case Way::seek:
      if (reinterpret_cast<off_t (*)(int, off_t, int)>(found.function)(fd, 0, SEEK_CUR) == 0)
        return true;
      break;
    case Way::stat: reinterpret_cast<int (*)(int, struct ::stat*)>(found.function)(fd, &st); break;
    case Way::map:
      mapped = reinterpret_cast<void* (*)(void*, std::size_t, int, int, int, off_t)>(
          found.function)(nullptr, 1, PROT_READ, MAP_PRIVATE, fd, 0);
      if (mapped != MAP_FAILED) sys::munmap(mapped, 1);
      break;
    case Way::none: return true;
  }
  return g_fds.kind(fd) != RowKind::served;
}

void remember(std::uintptr_t function) {
  auto* const place = std::find(std::begin(g_good), std::end(g_good), std::uintptr_t{0});
  if (place != std::end(g_good)) *place = function;
}

void tell(const Found& found) {
  if (past_libc::begin()) past_libc::end(base::LogLevel::warn, found.library, found.name);
}

// In mode real, changes must still be seen, so a process that serves copies reports the slot, too.
void tell_refused(const Found& found) {
  static constinit bool g_is_told = false;
  constexpr std::string_view k_changes = ", so changes by this call to files are not seen";
  if (past_libc::begin()) {
    past_libc::end(base::LogLevel::warn, found.library, found.name, k_changes);
  } else if (!g_is_told) {
    base::log(base::LogLevel::warn, "{} calls {}, and this library does not see it{}",
              found.library, found.name, k_changes);
  }
  g_is_told = true;
}

// Returns false only if all calls are known to reach this library. Reports a call that does not.
bool look_at_all() {
  const loaded_slots::Result result = loaded_slots::look(
      {.first_read = g_first_read,
       .is_wanted = [](const char* name) { return call_of(name) != nullptr; },
       .exempt = reinterpret_cast<std::uintptr_t>(profile::native::library()),
       .is_own_scope_possible = g_has_own_scopes.load(std::memory_order_relaxed)});
  if (result.refused.name != nullptr) {
    tell_refused(result.refused);
    return true;
  }
  if (!process::is_active() || (process::serves_copies() && !past_libc::is_doubted())) return true;
  for (const Found& other : result.others) {
    if (std::find(std::begin(g_good), std::end(g_good), other.function) != std::end(g_good))
      continue;
    if (!comes_to_us(other)) {
      tell(other);
      return true;
    }
    remember(other.function);
  }
  return result.is_incomplete;
}

// Returns false if another look is in progress and `waits` is false, or that look takes too long. A
// look that a fork has interrupted never ends in the child.
bool begin_look(bool waits) {
  constexpr std::uint64_t k_longest_ns = 10'000'000;
  static constinit std::atomic<bool> g_is_stuck{false};
  for (std::uint64_t until = 0; g_is_looking.exchange(true, std::memory_order_acquire);
       sched_yield()) {
    if (!waits || g_is_stuck.load(std::memory_order_relaxed)) return false;
    if (until == 0) until = base::monotonic_ns() + k_longest_ns;
    if (base::monotonic_ns() > until) g_is_stuck.store(true, std::memory_order_relaxed);
  }
  return true;
}

enum class When : std::uint8_t { always, changed };

void look(When when = When::always) {
  // A process that serves nothing still reports its changes to others.
  if ((!process::is_active() && !process::tells()) || g_first_read == 0 || !process::owns_table() ||
      base::may_be_in_handler())
    return;
  // A signal handler that jumps out of the check would leave the loader's lock held and prevent all
  // later checks.
  const BlockSignals block;
  if (!begin_look(/*waits=*/when == When::changed)) return;
  const KeepErrno keep;
  try {
    if (profile::loader_lock::is_free_soon() &&
        (when == When::always || loaded_slots::have_changed()) && !look_at_all())
      past_libc::trust();
  } catch (const std::bad_alloc&) {
    // Memory is exhausted. The next check will examine the same libraries again.
  }
  g_is_looking.store(false, std::memory_order_release);
}

}  // namespace

void look_if_changed() {
  if (g_has_own_scopes.load(std::memory_order_relaxed)) look(When::changed);
}

void look_if_doubted() {
  if (past_libc::is_doubted()) look();
}

void before_dlopen(int flags) {
  look_if_changed();
  if ((flags & RTLD_DEEPBIND) == 0) return;
  const KeepErrno keep;
  // The next check will treat libraries that this one has not seen as new.
  if (!g_has_own_scopes.load(std::memory_order_relaxed)) look();
  g_has_own_scopes.store(true, std::memory_order_relaxed);
  // The library's initializers may read files during dlopen.
  if (process::is_active() && process::owns_table() && past_libc::doubt())
    materialize_all(/*only_inherited=*/false, "dlopen");
}

void start() {
  profile::loader_lock::find();
  // RTLD_DEFAULT would find this library's own function (-Bsymbolic). A later call of dlsym would
  // discard the program's dlerror() message.
  g_first_read = reinterpret_cast<std::uintptr_t>(dlsym(dlopen(nullptr, RTLD_LAZY), "read"));
}

void look_if_due() {
  constexpr std::uint64_t k_pause_ns = 1'000'000'000;
  const std::uint64_t now = base::coarse_monotonic_ns();
  std::uint64_t due = g_next_ns.load(std::memory_order_relaxed);
  if (now >= due &&
      g_next_ns.compare_exchange_strong(due, now + k_pause_ns, std::memory_order_relaxed))
    look();
}

}  // namespace cube::shim::loaded_calls
