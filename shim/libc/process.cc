// fork, exec, spawn and exit. No served file crosses a process boundary, because files that a child
// would inherit are materialized first. pthread_atfork handles fork, and so also libc's internal
// forks (forkpty, daemon). vfork is in jumps.S.
#include <alloca.h>

#include <cstdarg>
#include <cstring>

#include "cache/region/posix_locks.h"
#include "shim/calls/file_calls.h"
#include "shim/calls/name/kernel_answer.h"
#include "shim/calls/new_fds.h"
#include "shim/calls/open/program_file.h"
#include "shim/calls/open/spawn_actions.h"
#include "shim/fd/materialize.h"
#include "shim/libc/exports.h"
#include "shim/lifecycle/fork.h"
#include "shim/lifecycle/lifecycle.h"
#include "shim/path/fd_path.h"
#include "shim/process/attachment.h"
#include "shim/process/ended_children.h"
#include "shim/process/process.h"
#include "shim/process/real_libc.h"
#include "shim/profile/profile.h"

namespace shim = cube::shim;
namespace real = cube::shim::real;
namespace process = cube::shim::process;
namespace ended_children = cube::shim::ended_children;
namespace lifecycle = cube::shim::lifecycle;

namespace {

// `path`: the program's file; it may be the name of an fd.
void before_exec(const char* path = nullptr, int dir = AT_FDCWD) {
  if (!process::owns_table()) return;
  if (process::is_active()) shim::materialize_named(path, dir);
  shim::profile::before_exec();
  shim::materialize_all(/*only_inherited=*/true, "exec");
  cube::cache::PosixLocks::keep_over_exec();
  shim::let_inherited_writers_outlive_us();
  shim::flush_counters();
  if (auto* const cache = shim::attachment::attached_cache(); cache != nullptr) cache->note_exec();
}

// After a failed exec, corrects the cached facts about the path. ENOENT may also mean that a
// script's interpreter does not exist.
int exec_has_failed(int result, int dir, const char* path, bool no_follow = false) {
  return shim::told(result,
                    {.dir = dir, .path = path, .no_follow = no_follow, .has_other_reasons = true});
}

// A name without a slash is searched for in PATH.
bool is_searched(const char* file) { return file == nullptr || std::strchr(file, '/') == nullptr; }

int search_has_failed(int result, const char* file) {
  return is_searched(file) ? result : exec_has_failed(result, AT_FDCWD, file);
}

// Puts the arguments of execl and its variants into an array on the stack, because execl may be
// called where malloc must not be called.
std::size_t count_arguments(va_list list) {
  std::size_t n = 1;
  while (va_arg(list, char*) != nullptr) ++n;
  return n;
}
void collect_arguments(const char* first, va_list list, char** to, std::size_t n) {
  to[0] = const_cast<char*>(first);
  for (std::size_t i = 1; i <= n; ++i) to[i] = va_arg(list, char*);
}

}  // namespace

// Executes the file of one of our paths.
#define CUBE_PROGRAM(path, arguments)                                                        \
  const shim::ProgramFile program(path);                                                     \
  if (program.error() != 0) {                                                                \
    errno = program.error();                                                                 \
    return -1;                                                                               \
  }                                                                                          \
  if (program.is_script())                                                                   \
    arguments = program.put_arguments(path, arguments, alloca(program.room_for(arguments))); \
  path = program.to_execute(path)

#define CUBE_EXEC(name, declaration, ...)                            \
  int export_##name declaration {                                    \
    before_exec(path);                                               \
    CUBE_PROGRAM(path, arguments);                                   \
    return exec_has_failed(real::name(__VA_ARGS__), AT_FDCWD, path); \
  }
CUBE_EXEC(execve, (const char* path, char* const* arguments, char* const* environment), path,
          arguments, environment)
CUBE_EXEC(execv, (const char* path, char* const* arguments), path, arguments)
#define CUBE_EXEC_SEARCH(name, declaration, ...)             \
  int export_##name declaration {                            \
    before_exec(file);                                       \
    CUBE_PROGRAM(file, arguments);                           \
    return search_has_failed(real::name(__VA_ARGS__), file); \
  }
CUBE_EXEC_SEARCH(execvp, (const char* file, char* const* arguments), file, arguments)
CUBE_EXEC_SEARCH(execvpe, (const char* file, char* const* arguments, char* const* environment),
                 file, arguments, environment)

int export_execveat(int dir, const char* path, char* const* arguments, char* const* environment,
                    int flags) {
  before_exec(path, dir);
  shim::materialize(dir);
  return exec_has_failed(real::execveat(dir, path, arguments, environment, flags), dir, path,
                         (flags & AT_SYMLINK_NOFOLLOW) != 0);
}
int export_fexecve(int fd, char* const* arguments, char* const* environment) {
  before_exec();
  shim::materialize(fd);
  return real::fexecve(fd, arguments, environment);
}

#define CUBE_EXEC_LIST(name, vector_form)                                          \
  int export_##name(const char* path, const char* first, ...) {                    \
    va_list list;                                                                  \
    va_start(list, first);                                                         \
    const std::size_t n = count_arguments(list);                                   \
    va_end(list);                                                                  \
    auto** const arguments = static_cast<char**>(alloca((n + 1) * sizeof(char*))); \
    va_start(list, first);                                                         \
    collect_arguments(first, list, arguments, n);                                  \
    va_end(list);                                                                  \
    return export_##vector_form(path, arguments);                                  \
  }
CUBE_EXEC_LIST(execl, execv)
CUBE_EXEC_LIST(execlp, execvp)
int export_execle(const char* path, const char* first, ...) {
  va_list list;
  va_start(list, first);
  const std::size_t n = count_arguments(list);
  va_end(list);
  auto** const arguments = static_cast<char**>(alloca((n + 1) * sizeof(char*)));
  va_start(list, first);
  collect_arguments(first, list, arguments, n);
  char* const* const environment = va_arg(list, char* const*);
  va_end(list);
  return export_execve(path, arguments, environment);
}

#define CUBE_SPAWNS(name, Child, is_path)                                                      \
  int export_##name(Child* child, const char* path, const posix_spawn_file_actions_t* actions, \
                    const posix_spawnattr_t* attributes, char* const* arguments,               \
                    char* const* environment) {                                                \
    if (!real::name.is_there()) return ENOSYS;                                                 \
    lifecycle::prepare_child();                                                                \
    const shim::ProgramFile program(path);                                                     \
    if (program.error() != 0) return program.error();                                          \
    if (program.is_script())                                                                   \
      arguments = program.put_arguments(path, arguments, alloca(program.room_for(arguments))); \
    path = program.to_execute(path);                                                           \
    const shim::NewFiles made = shim::new_files(actions);                                      \
    const int error = real::name(child, path, actions, attributes, arguments, environment);    \
    if (error != 0 && (is_path))                                                               \
      shim::kernel_answer::learn({.path = path, .has_other_reasons = true}, error);            \
    shim::note_spawned_writers(actions, made);                                                 \
    return error;                                                                              \
  }
CUBE_SPAWNS(posix_spawn, pid_t, true)
CUBE_SPAWNS(pidfd_spawn, int, true)
CUBE_SPAWNS(posix_spawnp, pid_t, !is_searched(path))
CUBE_SPAWNS(pidfd_spawnp, int, !is_searched(path))
int export_system(const char* command) {
  if (command != nullptr) lifecycle::prepare_child();
  const int status = real::system(command);
  if (command != nullptr) ended_children::note_ended();
  return status;
}
FILE* export_popen(const char* command, const char* mode) {
  lifecycle::prepare_child();
  shim::expect_new_fd();
  FILE* const stream = real::popen(command, mode);
  if (stream != nullptr) shim::noted(fileno(stream));
  return stream;
}

int export_pclose(FILE* stream) {
  const auto held = shim::file_calls::note_close(fileno(stream));
  const int status = real::pclose(stream);
  ended_children::note_ended();
  return status;
}

// libc spawns a shell for each command substitution by an internal call.
int export_wordexp(const char* words, ::wordexp_t* expanded, int flags) {
  const bool may_run = (flags & WRDE_NOCMD) == 0 &&
                       (std::strchr(words, '`') != nullptr || std::strstr(words, "$(") != nullptr);
  if (may_run) lifecycle::prepare_child();
  const int result = real::wordexp(words, expanded, flags);
  if (may_run) ended_children::note_ended();
  return result;
}

// Passes a local status to the call if the program passes none.
#define CUBE_WAITS(name, declaration, ...)                       \
  pid_t export_##name declaration {                              \
    int own = 0;                                                 \
    if (status == nullptr) status = &own;                        \
    const pid_t child = real::name(__VA_ARGS__);                 \
    ended_children::note_waited(child, child > 0 ? *status : 0); \
    return child;                                                \
  }
CUBE_WAITS(wait, (int* status), status)
CUBE_WAITS(waitpid, (pid_t child_wanted, int* status, int options), child_wanted, status, options)
CUBE_WAITS(wait3, (int* status, int options, struct ::rusage* usage), status, options, usage)
CUBE_WAITS(wait4, (pid_t child_wanted, int* status, int options, struct ::rusage* usage),
           child_wanted, status, options, usage)
int export_waitid(idtype_t type, id_t child, siginfo_t* info, int options) {
  siginfo_t own{};
  const int result = real::waitid(type, child, info != nullptr ? info : &own, options);
  ended_children::note_waited(result, info != nullptr ? *info : own);
  return result;
}

// _Fork runs no pthread_atfork handlers. If libc has no _Fork (before 2.34), use fork, whose
// handlers do the same.
pid_t export__Fork() {
  if (!real::_Fork.is_there()) return ::fork();
  lifecycle::prepare_child();
  const pid_t child = real::_Fork();
  if (child == 0) {
    lifecycle::become_child();
  } else {
    lifecycle::end_fork();
  }
  return child;
}

int export_clone(int (*function)(void*), void* stack, int flags, void* argument, ...) {
  va_list list;
  va_start(list, argument);
  auto* const parent_tid = va_arg(list, void*);
  auto* const tls = va_arg(list, void*);
  auto* const child_tid = va_arg(list, void*);
  va_end(list);
  const auto bits = static_cast<std::uint32_t>(flags);
  lifecycle::prepare_clone(bits);
  if ((bits & (CLONE_VM | CLONE_FILES)) == CLONE_VM) lifecycle::expect_shared_memory_child();
  return real::clone(function, stack, flags, argument, parent_tid, tls, child_tid);
}

void export__exit(int status) {
  lifecycle::leave();
  real::_exit(status);
  __builtin_unreachable();
}
void export__Exit(int status) {
  lifecycle::leave();
  real::_Exit(status);
  __builtin_unreachable();
}

// jumps.S calls this in the parent.
extern "C" __attribute__((visibility("hidden"))) void* cube_shim_before_vfork() {
  if (process::tells() || shim::g_fds.serves_any() || shim::profile::is_on())
    lifecycle::prepare_vforked_child();
  return real::g_vfork.find();
}
