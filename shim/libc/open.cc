// open and its variants, which hooks.def lists. Each function asks the shim first, then libc.
#include <cstdarg>
#include <cstdlib>

#include "shim/calls/file_calls.h"
#include "shim/calls/name/unmounted_paths.h"
#include "shim/calls/new_fds.h"
#include "shim/calls/open/open_plan.h"
#include "shim/libc/answers.h"
#include "shim/libc/open_by.h"
#include "shim/path/spelling.h"
#include "shim/process/cancellation.h"

namespace shim = cube::shim;
namespace real = cube::shim::real;
namespace calls = cube::shim::file_calls;
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
