// scandir and glob over directories of packs and buckets (unmounted_directory.h), and over
// directories of mounts whose listing may be in memory (mount_stream.h). libc's functions open
// directories with internal calls that bypass this library.
#include <glob.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include "shim/calls/directory/mount_stream.h"
#include "shim/calls/name/kernel_answer.h"
#include "shim/calls/name/unmounted_paths.h"
#include "shim/calls/new_fds.h"
#include "shim/libc/directory/dir_stream.h"
#include "shim/libc/exports.h"
#include "shim/process/c_result.h"
#include "shim/process/cancellation.h"
#include "shim/process/real_libc.h"

namespace shim = cube::shim;
namespace real = cube::shim::real;

namespace {

using Filter = int (*)(const struct ::dirent*);
using Compare = int (*)(const struct ::dirent**, const struct ::dirent**);

// Returns nothing if libc must open the directory.
std::optional<DIR*> open_stream(int dir, const char* path) {
  shim::expect_new_fd();
  cube::cache::FileStat stat;
  if (!shim::unmounted_paths::stat(dir, path, /*no_follow=*/false, stat) || !S_ISDIR(stat.mode))
    return shim::open_mount_stream(dir, path);
  return shim::stream_over(export_openat(dir, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

// The result of scandir: a list of entries. The caller frees each entry and the list.
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
      std::qsort(static_cast<void*>(entries_), size_, sizeof(void*),
                 reinterpret_cast<Order>(compare));
    *list = std::exchange(entries_, nullptr);
    return std::exchange(size_, 0);
  }

 private:
  struct ::dirent** entries_ = nullptr;
  std::size_t size_ = 0, room_ = 0;
};

// As in libc, errno is unchanged on success, even if `wanted` sets it.
int list_stream(DIR* directory, struct ::dirent*** list, Filter wanted, Compare compare) {
  struct Stream {
    DIR* of;
    ~Stream() {
      const shim::KeepErrno keep;
      const shim::NoCancel no_cancel;
      export_closedir(of);
    }
  };
  const int before = errno;
  const Stream stream{directory};
  EntryList entries;
  errno = 0;
  while (const struct ::dirent* const entry = export_readdir(directory)) {
    const bool is_wanted = wanted == nullptr || wanted(entry) != 0;
    errno = 0;
    if (is_wanted && !entries.add(*entry)) {
      errno = ENOMEM;
      break;
    }
  }
  if (errno != 0) return -1;
  const auto count = static_cast<int>(entries.hand_over(list, compare));
  errno = before;
  return count;
}

}  // namespace

#define CUBE_SCANDIR(name, at, declaration, ...)                                             \
  int export_##name declaration {                                                            \
    const std::optional<DIR*> stream = open_stream(at, path);                                \
    if (stream && *stream == nullptr) return -1;                                             \
    if (stream) return list_stream(*stream, list, wanted, compare);                          \
    return shim::told(real::name(__VA_ARGS__),                                               \
                      {.dir = at, .path = path, .wants = shim::PathCall::Wants::directory}); \
  }
CUBE_SCANDIR(scandir, AT_FDCWD,
             (const char* path, struct ::dirent*** list, Filter wanted, Compare compare), path,
             list, wanted, compare)
CUBE_SCANDIR(scandir64, AT_FDCWD,
             (const char* path, struct ::dirent*** list, Filter wanted, Compare compare), path,
             list, wanted, compare)
CUBE_SCANDIR(scandirat, dir,
             (int dir, const char* path, struct ::dirent*** list, Filter wanted, Compare compare),
             dir, path, list, wanted, compare)
CUBE_SCANDIR(scandirat64, dir,
             (int dir, const char* path, struct ::dirent*** list, Filter wanted, Compare compare),
             dir, path, list, wanted, compare)

namespace {

// Runs libc's glob with our exports as callbacks, which also handle the kernel's paths.
template <typename Call>
int glob_through_us(int flags, ::glob_t* found, Call&& call) {
  shim::expect_new_fd();
  const bool may_be_ours =
      shim::process::origin_metadata() != nullptr || shim::mount_stream::may_have_any();
  if (!may_be_ours || !shim::process::is_active() || (flags & GLOB_ALTDIRFUNC) != 0 ||
      found == nullptr)
    return call(flags);
  found->gl_opendir = [](const char* path) { return static_cast<void*>(export_opendir(path)); };
  found->gl_readdir = [](void* directory) { return export_readdir(static_cast<DIR*>(directory)); };
  found->gl_closedir = [](void* directory) {
    static_cast<void>(export_closedir(static_cast<DIR*>(directory)));
  };
  found->gl_stat = [](const char* path, struct ::stat* st) { return export_stat(path, st); };
  found->gl_lstat = [](const char* path, struct ::stat* st) { return export_lstat(path, st); };
  const int result = call(flags | GLOB_ALTDIRFUNC);
  found->gl_flags &= ~GLOB_ALTDIRFUNC;
  return result;
}

}  // namespace

int export_glob(const char* pattern, int flags, int (*on_error)(const char*, int),
                ::glob_t* found) {
  return glob_through_us(flags, found,
                         [&](int all) { return real::glob(pattern, all, on_error, found); });
}
int export_glob64(const char* pattern, int flags, int (*on_error)(const char*, int),
                  ::glob_t* found) {
  return glob_through_us(flags, found,
                         [&](int all) { return real::glob64(pattern, all, on_error, found); });
}
