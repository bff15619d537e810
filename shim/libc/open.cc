// open and its variants, which hooks.def lists. Each function asks the shim first, then libc.
#include <linux/openat2.h>
#include <sys/syscall.h>

#include <cstdarg>
#include <cstdlib>
#include <cstring>

#include "shim/calls/name/unmounted_paths.h"
#include "shim/calls/new_fds.h"
#include "shim/calls/open/open_plan.h"
#include "shim/fd/materialize.h"
#include "shim/libc/answers.h"
#include "shim/libc/open_by.h"
#include "shim/path/spelling.h"
#include "shim/process/cancellation.h"
#include "shim/process/user_pointer.h"

namespace shim = cube::shim;
namespace real = cube::shim::real;
using cube::shim::open_by;

#define CUBE_OPEN(name, dir, path, declaration, ...)                                        \
  int export_##name declaration {                                                           \
    va_list list;                                                                           \
    va_start(list, flags);                                                                  \
    const auto mode = static_cast<mode_t>(va_arg(list, unsigned));                          \
    va_end(list);                                                                           \
    return open_by(dir, path, flags, [&] { return real::name(__VA_ARGS__, flags, mode); }); \
  }
CUBE_OPEN(open, AT_FDCWD, path, (const char* path, int flags, ...), path)
CUBE_OPEN(open64, AT_FDCWD, path, (const char* path, int flags, ...), path)
CUBE_OPEN(__open, AT_FDCWD, path, (const char* path, int flags, ...), path)
CUBE_OPEN(__open64, AT_FDCWD, path, (const char* path, int flags, ...), path)
CUBE_OPEN(openat, dir, path, (int dir, const char* path, int flags, ...), dir, path)
CUBE_OPEN(openat64, dir, path, (int dir, const char* path, int flags, ...), dir, path)

#define CUBE_OPEN_FIXED(name, dir, path, flags, declaration, ...)              \
  int export_##name declaration {                                              \
    return open_by(dir, path, flags, [&] { return real::name(__VA_ARGS__); }); \
  }
CUBE_OPEN_FIXED(__open_2, AT_FDCWD, path, flags, (const char* path, int flags), path, flags)
CUBE_OPEN_FIXED(__open64_2, AT_FDCWD, path, flags, (const char* path, int flags), path, flags)
CUBE_OPEN_FIXED(__openat_2, dir, path, flags, (int dir, const char* path, int flags), dir, path,
                flags)
CUBE_OPEN_FIXED(__openat64_2, dir, path, flags, (int dir, const char* path, int flags), dir, path,
                flags)
// Only the kernel implements what openat2 adds to openat, so openat2 is planned with a flag that is
// never served. glibc has had this function since 2.43.
int export_openat2(int dir, const char* path, const ::open_how* how, size_t n) {
  const bool known = !shim::is_bad_pointer(how, sizeof *how) && n >= sizeof *how;
  shim::materialize(dir);
  const char* planned = path;
  // With RESOLVE_IN_ROOT, an absolute path begins at `dir`.
  if (known && (how->resolve & RESOLVE_IN_ROOT) != 0 &&
      shim::path_filter::is_readable_pointer(path))
    planned = path[std::strspn(path, "/")] == '\0' ? "." : path + std::strspn(path, "/");
  shim::OpenPlan plan(dir, planned,
                      known ? static_cast<int>(how->flags) | O_NOATIME : O_RDONLY | O_NOATIME);
  return plan.note(static_cast<int>(real::syscall(SYS_openat2, dir, path, how, n)));
}
constexpr int k_creat = O_CREAT | O_WRONLY | O_TRUNC;
CUBE_OPEN_FIXED(creat, AT_FDCWD, path, k_creat, (const char* path, mode_t mode), path, mode)
CUBE_OPEN_FIXED(creat64, AT_FDCWD, path, k_creat, (const char* path, mode_t mode), path, mode)
constexpr int k_temporary = O_CREAT | O_EXCL | O_RDWR;
CUBE_OPEN_FIXED(mkstemp, AT_FDCWD, pattern, k_temporary, (char* pattern), pattern)
CUBE_OPEN_FIXED(mkstemp64, AT_FDCWD, pattern, k_temporary, (char* pattern), pattern)
CUBE_OPEN_FIXED(mkostemp, AT_FDCWD, pattern, k_temporary | flags, (char* pattern, int flags),
                pattern, flags)
CUBE_OPEN_FIXED(mkostemp64, AT_FDCWD, pattern, k_temporary | flags, (char* pattern, int flags),
                pattern, flags)
CUBE_OPEN_FIXED(mkstemps, AT_FDCWD, pattern, k_temporary, (char* pattern, int suffix), pattern,
                suffix)
CUBE_OPEN_FIXED(mkstemps64, AT_FDCWD, pattern, k_temporary, (char* pattern, int suffix), pattern,
                suffix)
CUBE_OPEN_FIXED(mkostemps, AT_FDCWD, pattern, k_temporary | flags,
                (char* pattern, int suffix, int flags), pattern, suffix, flags)
CUBE_OPEN_FIXED(mkostemps64, AT_FDCWD, pattern, k_temporary | flags,
                (char* pattern, int suffix, int flags), pattern, suffix, flags)
