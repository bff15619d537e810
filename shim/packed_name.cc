#include "shim/packed_name.h"

#include <fmt/core.h>

#include <atomic>

#include "cache/pack/pack_copy.h"
#include "shim/fd_table.h"
#include "shim/new_fds.h"
#include "shim/process.h"

namespace cube::shim::packed_name {
namespace {

namespace sys = base::sys;

constinit std::atomic<std::uint32_t> g_links{0};

long make_link(const char* target, const cache::FileStat& stat, int flags) {
  base::Aside room;
  if (!room) return -ENOMEM;
  char* const name = room.data();
  const auto& place = process::config().ram_dir;
  if (place.size() + 80 > PATH_MAX) return -ENAMETOOLONG;
  *fmt::format_to_n(name, PATH_MAX - 1, "{}/cubeshim-link-{}-{}", place, sys::getpid(), g_links.fetch_add(1)).out = '\0';
  const long made = sys::raw(SYS_symlinkat, sys::arg(target), AT_FDCWD, sys::arg(name));
  if (sys::failed(made)) return made;
  const auto& time = stat.modified;
  const struct ::timespec times[2] = {{time.seconds, static_cast<long>(time.nanoseconds)},
                                      {time.seconds, static_cast<long>(time.nanoseconds)}};
  sys::raw(SYS_utimensat, AT_FDCWD, sys::arg(name), sys::arg(times), AT_SYMLINK_NOFOLLOW);
  const long fd = sys::open(name, O_PATH | O_NOFOLLOW | (flags & O_CLOEXEC));
  sys::unlink(name);
  return fd;
}

long open_link(const cache::PackMount& pack, const cache::PackEntry& entry, int flags) {
  base::Aside target;
  if (!target) return -ENOMEM;
  if (entry.data_size >= PATH_MAX) return -EIO;
  if (!pack.reader().read(entry, target.bytes())) return -EIO;
  target.data()[entry.data_size] = '\0';
  return make_link(target.data(), entry.stat, flags);
}

long open_file(const cache::PackMount& pack, std::string_view path, int flags) {
  auto copy = cache::open_copy_of_packed(pack, path, flags);
  return copy ? copy->release() : -copy.error().value;
}

}  // namespace

int open(const cache::PackMount& pack, std::string_view path, int flags) {
  cache::PackMount::Found found;
  const auto there = pack.find(path, (flags & O_NOFOLLOW) == 0, found);
  if (!there) return -there.error().value;
  expect_new_fd();
  const bool is_link = found.entry.kind == cache::RecordKind::link;
  const long fd = is_link ? open_link(pack, found.entry, flags) : open_file(pack, path, flags);
  if (fd >= 0) g_fds.forget(static_cast<int>(fd));
  return static_cast<int>(fd);
}

}  // namespace cube::shim::packed_name
