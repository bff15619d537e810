// Calls that change permissions or the meaning of paths: setuid, chroot, setns, seccomp.
#include <linux/seccomp.h>
#include <sys/prctl.h>

#include <cerrno>
#include <cstdarg>
#include <cstring>
#include <string_view>

#include "cache/base/clock.h"
#include "cache/base/memory/off_stack.h"
#include "shim/calls/file_calls.h"
#include "shim/calls/name/kernel_answer.h"
#include "shim/calls/name/name_change.h"
#include "shim/calls/name/unmounted_paths.h"
#include "shim/fd/materialize.h"
#include "shim/libc/exports.h"
#include "shim/lifecycle/lifecycle.h"
#include "shim/process/c_result.h"
#include "shim/process/real_libc.h"
#include "shim/process/user_pointer.h"
#include "shim/threads/own_threads.h"

namespace shim = cube::shim;
namespace real = cube::shim::real;

// After such a call, the process may have other rights, and a path may lead to another file.
namespace {

// For some calls, libc makes every thread change its rights, and waits for all of them. libc does
// not know the library's own threads (prefetch/threads).
shim::own_threads::Hanging hanging_at(const char* name) {
  const std::string_view call = name != nullptr ? name : "";
  const bool is_of_all_threads =
      (call.starts_with("set") && call != "setns") || call == "initgroups";
  return is_of_all_threads ? shim::own_threads::Hanging::is_waited_for
                           : shim::own_threads::Hanging::is_left;
}

void end_change(const char* name, bool has_changed) {
  has_changed ? shim::process::disable(name) : shim::lifecycle::keep_identity();
}

// No thread of this library may run during such a call. A running thread would fetch with the new
// rights, or below the new root, for processes that still have the old rights or the old root. Some
// calls also require that the process has only one thread. `name` is the name of the call if it
// changes the meaning of paths or permissions, otherwise null.
template <typename Call>
int change_identity(const char* name, Call&& call) {
  if (!shim::process::is_active() || !shim::process::owns_table()) return call();
  constexpr std::uint64_t k_until_gone_ns = 50'000'000;
  if (name != nullptr) shim::lifecycle::prepare_identity(name);
  const bool had_threads = shim::own_threads::pause(hanging_at(name));
  const std::uint64_t until = had_threads ? cube::base::monotonic_ns() + k_until_gone_ns : 0;
  auto result = call();
  // The kernel's threads for io_uring end a little later, so try again.
  while (result != 0 && errno == EINVAL && had_threads && cube::base::monotonic_ns() < until) {
    sched_yield();
    result = call();
  }
  if (name != nullptr) end_change(name, result == 0);
  shim::own_threads::resume();
  return result;
}

}  // namespace

#define CUBE_CHANGES_IDENTITY(name, declaration, ...)                       \
  int export_##name declaration {                                           \
    return change_identity(#name, [&] { return real::name(__VA_ARGS__); }); \
  }
CUBE_CHANGES_IDENTITY(setuid, (uid_t id), id)
CUBE_CHANGES_IDENTITY(seteuid, (uid_t id), id)
CUBE_CHANGES_IDENTITY(setreuid, (uid_t real_id, uid_t effective), real_id, effective)
CUBE_CHANGES_IDENTITY(setresuid, (uid_t real_id, uid_t effective, uid_t saved), real_id, effective,
                      saved)
CUBE_CHANGES_IDENTITY(setgid, (gid_t id), id)
CUBE_CHANGES_IDENTITY(setegid, (gid_t id), id)
CUBE_CHANGES_IDENTITY(setregid, (gid_t real_id, gid_t effective), real_id, effective)
CUBE_CHANGES_IDENTITY(setresgid, (gid_t real_id, gid_t effective, gid_t saved), real_id, effective,
                      saved)
CUBE_CHANGES_IDENTITY(setgroups, (size_t n, const gid_t* groups), n, groups)
CUBE_CHANGES_IDENTITY(initgroups, (const char* user, gid_t group), user, group)
CUBE_CHANGES_IDENTITY(capset, (void* header, const void* data), header, data)
int export_chroot(const char* path) {
  return change_identity("chroot", [&] {
    return shim::told(real::chroot(path),
                      {.path = path, .wants = shim::PathCall::Wants::directory});
  });
}
int export_setns(int fd, int type) {
  shim::materialize(fd);
  shim::process::expect_other_pid_namespaces();
  return change_identity("setns", [&] { return real::setns(fd, type); });
}

int export_unshare(int flags) {
  // Threads with separate fds in the kernel cannot share the shim's fd table.
  if ((flags & CLONE_FILES) != 0) {
    shim::materialize_all();
    shim::let_writers_outlive_us();
  }
  if ((flags & CLONE_NEWPID) != 0) shim::process::expect_other_pid_namespaces();
  const bool changes_names = (flags & (CLONE_FILES | CLONE_FS | CLONE_NEWNS | CLONE_NEWUSER)) != 0;
  return change_identity(changes_names ? "unshare" : nullptr, [&] { return real::unshare(flags); });
}
// Seals the process if the call sets a filter or the strict mode. A call without a filter program
// only tests whether seccomp exists.
int export_prctl(int option, ...) {
  va_list list;
  va_start(list, option);
  unsigned long a[4];
  for (unsigned long& argument : a) argument = va_arg(list, unsigned long);
  va_end(list);
  if (option == PR_SET_SECCOMP && (a[0] != SECCOMP_MODE_FILTER || a[1] != 0))
    shim::lifecycle::seal();
  // Allocators call prctl before our constructor, when dlsym cannot be called yet.
  if (!real::prctl.is_there()) {
    return static_cast<int>(shim::to_c(
        cube::base::sys::raw(SYS_prctl, option, static_cast<long>(a[0]), static_cast<long>(a[1]),
                             static_cast<long>(a[2]), static_cast<long>(a[3]))));
  }
  return real::prctl(option, a[0], a[1], a[2], a[3]);
}
// setfsuid and setfsgid return the previous id, even if they fail.
int export_setfsuid(uid_t id) {
  if (id == static_cast<uid_t>(-1)) return real::setfsuid(id);
  shim::lifecycle::prepare_identity("setfsuid");
  const int before = real::setfsuid(id);
  end_change("setfsuid", static_cast<int>(id) != before);
  return before;
}
int export_setfsgid(gid_t id) {
  if (id == static_cast<gid_t>(-1)) return real::setfsgid(id);
  shim::lifecycle::prepare_identity("setfsgid");
  const int before = real::setfsgid(id);
  end_change("setfsgid", static_cast<int>(id) != before);
  return before;
}
