// Another preloaded library, which reports false owners of files, like libfakeroot. It is loaded
// after our library.
#include <dlfcn.h>
#include <sys/stat.h>

extern "C" {
#define FAKE(name, declaration, ...)                                                        \
  int name declaration {                                                                    \
    static const auto next = reinterpret_cast<int(*) declaration>(dlsym(RTLD_NEXT, #name)); \
    const int result = next(__VA_ARGS__);                                                   \
    if (result == 0) st->st_uid = 12345;                                                    \
    return result;                                                                          \
  }
FAKE(stat, (const char* path, struct stat* st), path, st)
FAKE(stat64, (const char* path, struct stat64* st), path, st)
FAKE(lstat, (const char* path, struct stat* st), path, st)
FAKE(lstat64, (const char* path, struct stat64* st), path, st)
FAKE(fstat, (int fd, struct stat* st), fd, st)
FAKE(fstat64, (int fd, struct stat64* st), fd, st)
FAKE(fstatat, (int dir, const char* path, struct stat* st, int flags), dir, path, st, flags)
FAKE(fstatat64, (int dir, const char* path, struct stat64* st, int flags), dir, path, st, flags)
}
