// file_calls: fstat and statx of a served file, of a directory of a pack or bucket, and of a copy
// of an object.
#include "cache/bucket/copy_stat.h"
#include "shim/calls/directory/unmounted_directory.h"
#include "shim/calls/file_calls.h"
#include "shim/calls/new_fds.h"
#include "shim/fd/materialize.h"
#include "shim/fd/placeholder.h"
#include "shim/process/process.h"
#include "shim/process/real_libc.h"
#include "shim/process/user_pointer.h"

namespace cube::shim::file_calls {
namespace {

namespace sys = base::sys;

// True if the fd refers to a copy of an object. Sets `stat` to the stat of the object's path.
// Closes a parked fd first, because the program has already closed it.
bool is_copy_of_object(int fd, cache::FileStat& stat) {
  placeholder::unpark_if(fd);
  return process::has_buckets() && !real::stat_is_anothers() && cache::stat_of_copy(fd, stat);
}

// `mask` is the mask of a statx. Only statx reports a mount id, so the view is checked only for
// statx.
template <typename To, typename... Mask>
Answer answer(int fd, To* to, Mask... mask) {
  OpenFileRef file = g_fds.acquire(fd);
  if (!file) {
    const OpenFileRef directory = unmounted_directory::acquire(fd);
    cache::FileStat copy;
    if (!directory && !is_copy_of_object(fd, copy)) return {};
    if (is_bad_pointer(to, sizeof *to)) return -EFAULT;
    (directory ? directory->directory->stat() : copy).copy_to(*to, mask...);
    return 0;
  }
  if (!file->is_current()) [[unlikely]] {
    if (!file->record->has_only_lost_its_name()) return {};
    materialize_changed(fd, file);
    if (!file) return {};
  }
  if (real::stat_is_anothers() ||
      !((cache::FileStat::answers(mask) && file->record->has_one_view()) && ...)) [[unlikely]]
    return {};
  if (is_bad_pointer(to, sizeof *to)) return -EFAULT;
  file->record->stat.copy_to(*to, mask...);
  file->count(0);
  return 0;
}

}  // namespace

Answer stat(int fd, struct ::stat* st) { return answer(fd, st); }

Answer statx(int fd, unsigned mask, struct ::statx* x) { return answer(fd, x, mask); }

void StatFd::find() {
  const int fd = fd_;
  OpenFileRef file = g_fds.acquire(fd);
  if (!file || !process::owns_table()) return;
  if (real::stat_is_anothers() && file->is_current() && !file->is_origin()) {
    expect_new_fd();
    own_ = static_cast<int>(sys::open(file->record->path_text(), O_PATH | O_CLOEXEC));
    const auto now = own_ >= 0 ? cache::stat_fd(own_) : base::fail(ESTALE);
    if (now && now->same_content(file->record->stat)) {
      fd_ = own_;
      return;
    }
  }
  file.reset();
  materialize_slow(fd, "fstat");
}

void StatFd::end() const {
  sys::close(own_);
  placeholder::note_freed(own_);
}

}  // namespace cube::shim::file_calls
