#include "shim/calls/directory/served_directory.h"

#include <cerrno>
#include <cstring>

#include "shim/calls/directory/empty_directory.h"
#include "shim/calls/directory/listed_directory.h"
#include "shim/calls/new_fds.h"
#include "shim/process/user_pointer.h"

namespace cube::shim::served_directory {

namespace sys = base::sys;

int open(const cache::Metadata& metadata, std::string_view key, int flags) {
  const bool with_names = (flags & O_PATH) == 0;
  const auto follow =
      (flags & O_NOFOLLOW) == 0 ? cache::Metadata::Follow::last : cache::Metadata::Follow::nothing;
  const auto opened = metadata.list(key, follow, with_names);
  if (!opened) return -opened.error().value;
  cache::Listing* const directory = *opened;
  expect_new_fd();
  OpenFileRef file = open_files::make();
  const long fd = file ? empty_directory::open(flags) : -ENFILE;
  if (fd < 0 || !g_fds.is_within(static_cast<int>(fd))) {
    directory->release();
    if (fd < 0) return static_cast<int>(fd);
    sys::close(static_cast<int>(fd));
    return -EMFILE;
  }
  const int new_fd = static_cast<int>(fd);
  g_fds.forget(new_fd);
  file->kind = OpenFile::Kind::directory;
  file->directory = directory;
  file->size = directory->end();
  file->flags = flags;
  g_fds.set(new_fd, RowKind::served_directory, std::move(file), (flags & O_CLOEXEC) != 0);
  return new_fd;
}

long get_entries(OpenFile& file, void* to, std::size_t n) {
  if ((file.flags & O_PATH) != 0) return -EBADF;
  if (is_bad_pointer(to, n)) return -EFAULT;
  std::uint64_t at = file.offset.load(std::memory_order_acquire), end = 0;
  do {
    if (at >= file.size) return 0;
    end = file.directory->end_of(at, n);
    if (end == at) return -EINVAL;
  } while (!file.offset.compare_exchange_weak(at, end, std::memory_order_acq_rel));
  std::memcpy(to, file.directory->at(at), end - at);
  return static_cast<long>(end - at);
}

struct ::dirent* next_entry(OpenFile& file) {
  if ((file.flags & O_PATH) != 0) {
    errno = EBADF;
    return nullptr;
  }
  return listed_directory::next_entry(file);
}

long seek(OpenFile& file, std::int64_t offset, int whence) {
  if ((file.flags & O_PATH) != 0) return -EBADF;
  const auto here = static_cast<std::int64_t>(file.offset.load(std::memory_order_acquire));
  if (whence == SEEK_CUR && offset == 0) return static_cast<long>(here);
  if (whence == SEEK_CUR && __builtin_add_overflow(here, offset, &offset)) return -EINVAL;
  if ((whence != SEEK_SET && whence != SEEK_CUR) || offset < 0) return -EINVAL;
  const std::uint64_t target = file.directory->round_up(static_cast<std::uint64_t>(offset));
  file.offset.store(target, std::memory_order_release);
  return static_cast<long>(target);
}

}  // namespace cube::shim::served_directory
