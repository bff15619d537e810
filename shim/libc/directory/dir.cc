// Reads directories that this process answers from memory (unmounted_directory.h, mount_stream.h).
// The stream is libc's, made from the fd. readdir and its variants return the entries from memory
// instead of the kernel's.
#include <cerrno>
#include <cstring>
#include <utility>

#include "shim/calls/directory/mount_stream.h"
#include "shim/calls/directory/unmounted_directory.h"
#include "shim/calls/file_calls.h"
#include "shim/calls/name/unmounted_paths.h"
#include "shim/calls/new_fds.h"
#include "shim/fd/materialize.h"
#include "shim/libc/directory/dir_stream.h"
#include "shim/libc/exports.h"
#include "shim/libc/open_by.h"
#include "shim/libc/profiled.h"
#include "shim/process/c_result.h"
#include "shim/process/cancellation.h"
#include "shim/process/real_libc.h"

namespace shim = cube::shim;
namespace real = cube::shim::real;
namespace served = cube::shim::unmounted_directory;
namespace listed = cube::shim::mount_stream;

namespace {

struct OwnStream {
  shim::OpenFileRef file;  // empty: the stream is libc's
  bool is_listed = false;  // true: a directory of a mount, with the listing in memory
};

OwnStream stream_of(DIR* directory) {
  if (directory == nullptr) return {};
  const int fd = real::dirfd(directory);
  if (shim::OpenFileRef file = listed::acquire(fd)) return {std::move(file), true};
  return {served::acquire(fd)};
}

// Makes the kernel continue the stream at this place. Returns 0 or -errno. -ENOENT means that the
// origin no longer has the directory, and the fd still refers to an empty directory.
int materialize_directory(DIR* directory, long place) {
  const int error = listed::materialize_directory(real::dirfd(directory));
  if (error == 0) real::seekdir(directory, place);
  return error;
}

}  // namespace

#define CUBE_READDIR(name)                                      \
  struct ::dirent* export_##name(DIR* directory) {              \
    CUBE_PLAIN(struct ::dirent*, {                              \
      if (const OwnStream own = stream_of(directory); own.file) \
        return served::next_entry(*own.file);                   \
      return shim::by_kernel(real::name(directory));            \
    });                                                         \
    CUBE_PROFILED(list, .fd = real::dirfd(directory));          \
  }
CUBE_READDIR(readdir)
CUBE_READDIR(readdir64)

#define CUBE_READDIR_R(name)                                                            \
  int export_##name(DIR* directory, struct ::dirent* entry, struct ::dirent** result) { \
    const OwnStream own = stream_of(directory);                                         \
    if (!own.file) return real::name(directory, entry, result);                         \
    if ((own.file->flags & O_PATH) != 0) return EBADF;                                  \
    const struct ::dirent* const next = served::next_entry(*own.file);                  \
    if (next != nullptr) std::memcpy(static_cast<void*>(entry), next, next->d_reclen);  \
    *result = next != nullptr ? entry : nullptr;                                        \
    return 0;                                                                           \
  }
CUBE_READDIR_R(readdir_r)
CUBE_READDIR_R(readdir64_r)

long export_telldir(DIR* directory) {
  const OwnStream own = stream_of(directory);
  if (!own.file) return real::telldir(directory);
  return own.is_listed ? listed::tell(*own.file) : served::seek(*own.file, 0, SEEK_CUR);
}
void export_seekdir(DIR* directory, long position) {
  const OwnStream own = stream_of(directory);
  if (!own.file) {
    real::seekdir(directory, position);
  } else if (!own.is_listed) {
    served::seek(*own.file, position, SEEK_SET);
  } else if (!listed::seek(*own.file, position)) {
    materialize_directory(directory, position);
  }
}
void export_rewinddir(DIR* directory) {
  const OwnStream own = stream_of(directory);
  // As in the kernel, a rewound stream shows the current entries. If the origin's directory cannot
  // be opened, the stream keeps the old listing.
  if (own.is_listed) {
    if (const int error = materialize_directory(directory, 0); error != 0 && error != -ENOENT)
      listed::seek(*own.file, 0);
  } else if (own.file) {
    served::seek(*own.file, 0, SEEK_SET);
    return;
  }
  real::rewinddir(directory);
}

ssize_t export_getdents64(int fd, void* to, size_t n) {
  CUBE_PLAIN(ssize_t, {
    if (const shim::OpenFileRef file = served::acquire(fd))
      return shim::to_c(served::get_entries(*file, to, n));
    shim::materialize(fd);
    return shim::by_kernel(real::getdents64(fd, to, n));
  });
  CUBE_PROFILED(list, .fd = fd);
}

int export_dirfd(DIR* directory) {
  if (const OwnStream own = stream_of(directory); own.is_listed) {
    // dirfd fails if no fd is free, or if the process may no longer open the directory. An fd of
    // the empty directory would hide entries that exist.
    const int error = materialize_directory(directory, listed::tell(*own.file));
    if (error != 0 && error != -ENOENT) return static_cast<int>(shim::to_c(error));
  }
  return real::dirfd(directory);
}

DIR* cube::shim::stream_over(int fd) {
  DIR* const directory = fd >= 0 ? real::fdopendir(fd) : nullptr;
  if (directory == nullptr && fd >= 0) export_close(fd);
  return directory;
}

std::optional<DIR*> cube::shim::open_mount_stream(int dir, const char* path) {
  bool is_kernels = false;
  const int fd = listed::open(dir, path, is_kernels);
  if (fd < 0 && fd != listed::k_kernels) {
    errno = -fd;
    return nullptr;
  }
  const shim::KeepErrno keep;
  DIR* const directory = stream_over(fd);
  return directory != nullptr ? std::optional(directory) : std::nullopt;
}

namespace {

DIR* open_directory(const char* path) {
  if (const auto answer = shim::open_mount_stream(AT_FDCWD, path); answer) return *answer;
  DIR* directory = nullptr;
  const int fd =
      shim::open_by(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC, [&] {
        directory = real::opendir(path);
        return directory != nullptr ? real::dirfd(directory) : -1;
      });
  // For one of our paths, open_by made an fd, but no stream.
  return directory != nullptr ? directory : shim::stream_over(fd);
}

}  // namespace

DIR* export_opendir(const char* path) {
  if (!shim::profile::is_on()) [[likely]]
    return open_directory(path);
  DIR* directory = nullptr;
  const auto open_stream_fd = [&] {
    directory = open_directory(path);
    return directory != nullptr ? real::dirfd(directory) : -1;
  };
  shim::profiled(CUBE_SUBJECT(list, .fd = AT_FDCWD, .path = path), open_stream_fd);
  return directory;
}
int export_closedir(DIR* directory) {
  if (directory == nullptr) return real::closedir(directory);
  CUBE_PLAIN(int, {
    // The fd may refer to another file after the close. So clear its row, even if this process no
    // longer serves anything.
    const auto held = shim::file_calls::note_close(real::dirfd(directory));
    return real::closedir(directory);
  });
  CUBE_PROFILED(close, .fd = real::dirfd(directory));
}
