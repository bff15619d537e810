// Reading directories: the streams and lists of libc, where the names of a directory are ours (served_directory.h). A stream is
// libc's own over the number; what it gives out is ours. Libc's scandir and glob open directories by calls that pass us by.
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "shim/calls/c_result.h"
#include "shim/calls/file_calls.h"
#include "shim/calls/listed_directory.h"
#include "shim/calls/names.h"
#include "shim/calls/new_fds.h"
#include "shim/calls/served_directory.h"
#include "shim/cancellation.h"
#include "shim/exports/exports.h"
#include "shim/exports/open_by.h"
#include "shim/materialize.h"
#include "shim/real_libc.h"

namespace shim = cube::shim;
namespace real = cube::shim::real;
namespace served = cube::shim::served_directory;
namespace listed = cube::shim::listed_directory;

namespace {

using Filter = int (*)(const struct ::dirent*);
using Compare = int (*)(const struct ::dirent**, const struct ::dirent**);

// The directory of a stream, if it is a served one.
shim::OpenFileRef served_stream(DIR* directory) {
  if (shim::process::names() == nullptr || directory == nullptr) return {};
  return served::acquire(real::dirfd(directory));
}
// The same of one whose listing is in memory.
shim::OpenFileRef listed_stream(DIR* directory) {
  return directory != nullptr ? listed::acquire(real::dirfd(directory)) : shim::OpenFileRef();
}

// The stream goes on at the kernel, at the same place. 0 or -errno; -ENOENT: the origin has lost the directory, and the number is
// that of an empty one.
int become_real(DIR* directory, long place) {
  const int error = listed::become_real(real::dirfd(directory));
  if (error == 0) real::seekdir(directory, place);
  return error;
}

}  // namespace

#define CUBE_READDIR(name)                                                                         \
  struct ::dirent* export_##name(DIR* directory) {                                                 \
    if (const shim::OpenFileRef file = served_stream(directory)) return served::next_entry(*file); \
    if (const shim::OpenFileRef file = listed_stream(directory)) return listed::next_entry(*file); \
    return real::name(directory);                                                                  \
  }
CUBE_READDIR(readdir)
CUBE_READDIR(readdir64)

#define CUBE_READDIR_R(name)                                                                               \
  int export_##name(DIR* directory, struct ::dirent* entry, struct ::dirent** result) {                    \
    shim::OpenFileRef file = served_stream(directory);                                                     \
    const bool is_listed = !file;                                                                          \
    if (is_listed) file = listed_stream(directory);                                                        \
    if (!file) return real::name(directory, entry, result);                                                \
    if ((file->flags & O_PATH) != 0) return EBADF;                                                         \
    const struct ::dirent* const next = is_listed ? listed::next_entry(*file) : served::next_entry(*file); \
    if (next != nullptr) std::memcpy(static_cast<void*>(entry), next, next->d_reclen);                     \
    *result = next != nullptr ? entry : nullptr;                                                           \
    return 0;                                                                                              \
  }
CUBE_READDIR_R(readdir_r)
CUBE_READDIR_R(readdir64_r)

long export_telldir(DIR* directory) {
  if (const shim::OpenFileRef file = listed_stream(directory)) return listed::tell(*file);
  if (const shim::OpenFileRef file = served_stream(directory)) return served::seek(*file, 0, SEEK_CUR);
  return real::telldir(directory);
}
void export_seekdir(DIR* directory, long position) {
  if (const shim::OpenFileRef file = listed_stream(directory)) {
    if (!listed::seek(*file, position)) become_real(directory, position);
    return;
  }
  if (const shim::OpenFileRef file = served_stream(directory)) {
    served::seek(*file, position, SEEK_SET);
    return;
  }
  real::seekdir(directory, position);
}
void export_rewinddir(DIR* directory) {
  // It shows the directory as it is now, and so does the kernel. The listing is better than nothing.
  if (const shim::OpenFileRef file = listed_stream(directory)) {
    if (const int error = become_real(directory, 0); error != 0 && error != -ENOENT) listed::seek(*file, 0);
  }
  if (const shim::OpenFileRef file = served_stream(directory)) {
    served::seek(*file, 0, SEEK_SET);
    return;
  }
  real::rewinddir(directory);
}

ssize_t export_getdents64(int fd, void* to, size_t n) {
  if (const shim::OpenFileRef file = served::acquire(fd)) return shim::to_c(served::get_entries(*file, to, n));
  shim::materialize(fd);
  return real::getdents64(fd, to, n);
}

// ---- lists ------------------------------------------------------------------------------------------------------------

namespace {

bool is_served_directory(int dir, const char* path) {
  cube::cache::FileStat stat;
  return shim::names::stat(dir, path, /*no_follow=*/false, stat) && (stat.mode & S_IFMT) == S_IFDIR;
}

// Entries that the caller frees one by one, and the list of them.
class EntryList {
 public:
  EntryList() = default;
  EntryList(const EntryList&) = delete;
  EntryList& operator=(const EntryList&) = delete;
  ~EntryList() {
    for (std::size_t i = 0; i < size_; ++i) std::free(entries_[i]);
    std::free(static_cast<void*>(entries_));
  }
  bool add(const struct ::dirent& entry) {
    if (size_ == room_) {
      const std::size_t room = room_ == 0 ? 64 : 2 * room_;
      void* const grown = std::realloc(static_cast<void*>(entries_), room * sizeof(void*));
      if (grown == nullptr) return false;
      entries_ = static_cast<struct ::dirent**>(grown);
      room_ = room;
    }
    void* const copy = std::malloc(entry.d_reclen);
    if (copy == nullptr) return false;
    std::memcpy(copy, &entry, entry.d_reclen);
    entries_[size_++] = static_cast<struct ::dirent*>(copy);
    return true;
  }
  std::size_t hand_over(struct ::dirent*** list, Compare compare) {
    using Order = int (*)(const void*, const void*);
    if (compare != nullptr && size_ != 0)
      std::qsort(static_cast<void*>(entries_), size_, sizeof(void*), reinterpret_cast<Order>(compare));
    *list = std::exchange(entries_, nullptr);
    return std::exchange(size_, 0);
  }

 private:
  struct ::dirent** entries_ = nullptr;
  std::size_t size_ = 0, room_ = 0;
};

int list_served(int dir, const char* path, struct ::dirent*** list, Filter wanted, Compare compare) {
  // Closed also where `wanted` or `compare` throws, or ends the thread.
  struct Directory {
    int fd;
    ~Directory() {
      const shim::KeepErrno keep;
      const shim::NoCancel no_cancel;
      if (fd >= 0) export_close(fd);
    }
  };
  const Directory directory{export_openat(dir, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (directory.fd < 0) return -1;
  EntryList entries;
  bool fits = true;
  const shim::OpenFileRef file = served::acquire(directory.fd);
  while (const struct ::dirent* const entry = file && fits ? served::next_entry(*file) : nullptr) {
    if (wanted == nullptr || wanted(entry) != 0) fits = entries.add(*entry);
  }
  return fits ? static_cast<int>(entries.hand_over(list, compare)) : -1;
}

}  // namespace

#define CUBE_SCANDIR(name, dir, declaration, ...)                                             \
  int export_##name declaration {                                                             \
    shim::expect_new_fd();                                                                    \
    if (is_served_directory(dir, path)) return list_served(dir, path, list, wanted, compare); \
    return real::name(__VA_ARGS__);                                                           \
  }
CUBE_SCANDIR(scandir, AT_FDCWD, (const char* path, struct ::dirent*** list, Filter wanted, Compare compare), path, list, wanted,
             compare)
CUBE_SCANDIR(scandir64, AT_FDCWD, (const char* path, struct ::dirent*** list, Filter wanted, Compare compare), path, list, wanted,
             compare)
CUBE_SCANDIR(scandirat, dir, (int dir, const char* path, struct ::dirent*** list, Filter wanted, Compare compare), dir, path,
             list, wanted, compare)
CUBE_SCANDIR(scandirat64, dir, (int dir, const char* path, struct ::dirent*** list, Filter wanted, Compare compare), dir, path,
             list, wanted, compare)

namespace {

// Libc's glob through our calls, which are the kernel's outside our names.
template <typename Call>
int glob_through_us(int flags, ::glob_t* found, Call&& call) {
  shim::expect_new_fd();
  if (shim::process::names() == nullptr || !shim::process::is_active() || (flags & GLOB_ALTDIRFUNC) != 0) return call(flags);
  found->gl_opendir = [](const char* path) { return static_cast<void*>(export_opendir(path)); };
  found->gl_readdir = [](void* directory) { return export_readdir(static_cast<DIR*>(directory)); };
  found->gl_closedir = [](void* directory) { static_cast<void>(export_closedir(static_cast<DIR*>(directory))); };
  found->gl_stat = [](const char* path, struct ::stat* st) { return export_stat(path, st); };
  found->gl_lstat = [](const char* path, struct ::stat* st) { return export_lstat(path, st); };
  const int result = call(flags | GLOB_ALTDIRFUNC);
  found->gl_flags &= ~GLOB_ALTDIRFUNC;
  return result;
}

}  // namespace

int export_glob(const char* pattern, int flags, int (*on_error)(const char*, int), ::glob_t* found) {
  return glob_through_us(flags, found, [&](int all) { return real::glob(pattern, all, on_error, found); });
}
int export_glob64(const char* pattern, int flags, int (*on_error)(const char*, int), ::glob_t* found) {
  return glob_through_us(flags, found, [&](int all) { return real::glob64(pattern, all, on_error, found); });
}

int export_dirfd(DIR* directory) {
  if (const shim::OpenFileRef file = listed_stream(directory)) {
    // At the limit of fds, and without the right to open it any more: an empty directory would tell of no name that is there.
    const int error = become_real(directory, listed::tell(*file));
    if (error != 0 && error != -ENOENT) return static_cast<int>(shim::to_c(error));
  }
  return real::dirfd(directory);
}

static DIR* stream_over(int fd) {
  const shim::KeepErrno keep;
  DIR* const directory = real::fdopendir(fd);
  if (directory == nullptr) export_close(fd);
  return directory;
}

DIR* export_opendir(const char* path) {
  bool is_kernels = false;
  const int listed_fd = listed::open(path, is_kernels);
  DIR* directory = listed_fd >= 0 ? stream_over(listed_fd) : nullptr;
  if (directory != nullptr) return directory;
  if (listed_fd < 0 && listed_fd != listed::k_kernels) {
    errno = -listed_fd;
    return nullptr;
  }
  const int fd = shim::open_by(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC, [&] {
    directory = real::opendir(path);
    return directory != nullptr ? real::dirfd(directory) : -1;
  });
  // For a name of ours there is only the number yet.
  if (directory == nullptr && fd >= 0) {
    directory = real::fdopendir(fd);
    if (directory == nullptr) export_close(fd);
  }
  return directory;
}
int export_closedir(DIR* directory) {
  if (directory == nullptr) return real::closedir(directory);
  // The next directory under its number is another one, also where nothing is served any more.
  const auto held = shim::file_calls::note_close(real::dirfd(directory));
  return real::closedir(directory);
}
