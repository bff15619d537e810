#include "shim/calls/open/path_only_fd.h"

#include "shim/calls/new_fds.h"
#include "shim/calls/temporary_name.h"
#include "shim/fd/fd_table.h"
#include "shim/process/process.h"

namespace cube::shim::path_only_fd {
namespace {

namespace sys = base::sys;

long make_link(const char* target, const cache::FileStat& stat, int flags) {
  base::OffStack room;
  if (!room) return -ENOMEM;
  char* const name = room.data();
  const long made = make_temporary(name, "link", [=] {
    return sys::raw(SYS_symlinkat, sys::arg(target), AT_FDCWD, sys::arg(name));
  });
  if (sys::failed(made)) return made;
  const auto& time = stat.modified;
  const struct ::timespec times[2] = {{time.seconds, static_cast<long>(time.nanoseconds)},
                                      {time.seconds, static_cast<long>(time.nanoseconds)}};
  sys::raw(SYS_utimensat, AT_FDCWD, sys::arg(name), sys::arg(times), AT_SYMLINK_NOFOLLOW);
  const long fd = sys::open(name, O_PATH | O_NOFOLLOW | (flags & O_CLOEXEC));
  sys::unlink(name);
  return fd;
}

long open_link(const cache::Metadata& metadata, std::string_view key, const cache::FileStat& stat,
               int flags) {
  base::OffStack target;
  if (!target) return -ENOMEM;
  const auto length = metadata.read_link(key, target.data());
  if (!length) return -length.error().value;
  target.data()[*length] = '\0';
  return make_link(target.data(), stat, flags);
}

long open_file(const cache::Metadata& metadata, std::string_view key, int flags) {
  auto copy = metadata.open_copy(key, flags);
  return copy ? copy->release() : -copy.error().value;
}

}  // namespace

int open(const cache::Metadata& metadata, std::string_view key, int flags) {
  const auto follow =
      (flags & O_NOFOLLOW) == 0 ? cache::Metadata::Follow::last : cache::Metadata::Follow::nothing;
  const auto there = metadata.stat(key, follow);
  if (!there) return -there.error().value;
  expect_new_fd();
  const bool is_link = (there->mode & S_IFMT) == S_IFLNK;
  const long fd =
      is_link ? open_link(metadata, key, *there, flags) : open_file(metadata, key, flags);
  if (fd >= 0) g_fds.forget(static_cast<int>(fd));
  return static_cast<int>(fd);
}

}  // namespace cube::shim::path_only_fd
