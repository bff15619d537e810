// Changes by this process: content, names, times and modes, while the same files are open.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>

#include "tests/differential/player.h"

namespace cube::differ {
namespace {

constexpr timespec k_accessed{k_age, 0};
timespec time_of(std::int64_t n) {
  if (n % 16 == 0) return {0, UTIME_NOW};
  if (n % 16 == 1) return {0, UTIME_OMIT};
  return {k_age + n, 0};
}

}  // namespace

DIFFER_PLAY(write) {
  const int fd = p.fd(a[0]);
  const std::string bytes =
      pattern(static_cast<std::uint64_t>(a[2]), static_cast<std::size_t>(a[1]));
  Buffer from(bytes);
  p.content_changed(fd);
  p.say("write({}, {}) = {}", fd, bytes.size(),
        p.call([&] { return write(fd, from.data(), bytes.size()); }).text());
}
DIFFER_PLAY(pwrite) {
  const int fd = p.fd(a[0]);
  const std::string bytes =
      pattern(static_cast<std::uint64_t>(a[3]), static_cast<std::size_t>(a[1]));
  Buffer from(bytes);
  p.content_changed(fd);
  p.say("pwrite({}, {}, {}) = {}", fd, bytes.size(), a[2],
        p.call([&] { return pwrite(fd, from.data(), bytes.size(), a[2]); }).text());
}
DIFFER_PLAY(ftruncate) {
  const int fd = p.fd(a[0]);
  p.content_changed(fd);
  p.say("ftruncate({}, {}) = {}", fd, a[1], p.call([&] { return ftruncate(fd, a[1]); }).text());
}
DIFFER_PLAY(truncate) {
  const std::string path = p.path(a[0], a[1]);
  if (!p.may_open(AT_FDCWD, path, O_WRONLY) ||
      (p.tree().is_packed() && (a[2] < 0 || !Player::entry(a[0]).is_regular())))
    return;
  p.content_changed(path.c_str());
  p.say("truncate({}, {}) = {}", p.show(path), a[2],
        p.call([&] { return truncate(path.c_str(), a[2]); }).text());
}
DIFFER_PLAY(fallocate) {
  const int fd = p.fd(a[0]);
  constexpr int modes[] = {0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                           FALLOC_FL_ZERO_RANGE};
  p.content_changed(fd);
  const Result r = p.call([&] { return fallocate(fd, modes[a[3] % 4], a[1], a[2]); });
  p.say("fallocate({}, {}, {}, {}) = {}", fd, modes[a[3] % 4], a[1], a[2], r.text());
}

DIFFER_PLAY(rename) {
  const std::string from = p.path_inside(a[0], a[1]), to = p.path_inside(a[2], a[3]);
  const Result r = p.call([&] {
    if (a[4] < 5) return rename(from.c_str(), to.c_str());
    if (a[4] == 5) return renameat(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str());
    return renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(),
                     a[4] == 6 ? RENAME_NOREPLACE : 0);
  });
  p.say("rename({}, {}) {} = {}", p.show(from), p.show(to), a[4], r.text());
}
DIFFER_PLAY(exchange) {
  const std::string from = p.path_inside(a[0], a[1]), to = p.path_inside(a[2], a[3]);
  const Result r = p.call(
      [&] { return renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE); });
  p.say("exchange({}, {}) = {}", p.show(from), p.show(to), r.text());
}
// Renames another file over this file, like editors and download tools.
DIFFER_PLAY(replace) {
  const std::string path = p.path_inside(a[0], 0), fresh = p.tree().root + "/fresh";
  const std::string bytes =
      pattern(static_cast<std::uint64_t>(a[2]), static_cast<std::size_t>(a[1]));
  const Result made =
      p.call([&] { return open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644); });
  long written = -1;
  if (!made.failed()) {
    written = write(static_cast<int>(made.value), bytes.data(), bytes.size());
    close(static_cast<int>(made.value));
  }
  const Result r = p.call([&] { return rename(fresh.c_str(), path.c_str()); });
  p.say("replace({}, {}) = {}, {}, {}", p.show(path), bytes.size(), made.text(), written, r.text());
}
DIFFER_PLAY(link) {
  const std::string from = p.path_inside(a[0], a[1]), to = p.path_inside(a[2], a[3]);
  if (!p.may_change(from, false)) return;
  p.say("link({}, {}) = {}", p.show(from), p.show(to),
        p.call([&] { return link(from.c_str(), to.c_str()); }).text());
}
DIFFER_PLAY(symlink) {
  const std::string to = p.path_inside(a[1], a[2]);
  const std::string target(Player::entry(a[0]).name);
  p.say("symlink({}, {}) = {}", target, p.show(to),
        p.call([&] { return symlink(target.c_str(), to.c_str()); }).text());
}
DIFFER_PLAY(unlink) {
  const std::string path = p.path_inside(a[0], a[1]);
  const Result r = p.call([&] {
    if (a[2] == 7) return remove(path.c_str());
    return a[2] == 6 ? unlinkat(AT_FDCWD, path.c_str(), AT_REMOVEDIR) : unlink(path.c_str());
  });
  p.say("unlink({}) {} = {}", p.show(path), a[2], r.text());
}
DIFFER_PLAY(mkdir) {
  const std::string path = p.path_inside(a[0], a[1]);
  p.say("mkdir({}) = {}", p.show(path), p.call([&] { return mkdir(path.c_str(), 0755); }).text());
}
DIFFER_PLAY(rmdir) {
  const std::string path = p.path_inside(a[0], a[1]);
  p.say("rmdir({}) = {}", p.show(path), p.call([&] { return rmdir(path.c_str()); }).text());
}

DIFFER_PLAY(utimens) {
  const std::string path = a[3] % 2 == 0 ? p.path(a[0], a[1]) : p.path_inside(a[0], a[1]);
  const timespec times[2] = {k_accessed, time_of(a[2])};
  const int flags = a[3] % 2 == 0 ? 0 : AT_SYMLINK_NOFOLLOW;
  if (!p.may_change(path, flags == 0)) return;
  const Result r =
      p.call([&] { return utimensat(AT_FDCWD, path.c_str(), a[3] == 6 ? nullptr : times, flags); });
  p.say("utimensat({}, {}, {}) = {}", p.show(path), a[2], flags, r.text());
}
DIFFER_PLAY(futimens) {
  const int fd = p.fd(a[0]);
  if (p.is_copy_at(fd)) return p.say("futimens({}, {}) = ?", fd, a[1]);
  const timespec times[2] = {k_accessed, time_of(a[1])};
  p.say("futimens({}, {}) = {}", fd, a[1], p.call([&] { return futimens(fd, times); }).word());
}
DIFFER_PLAY(chmod) {
  const std::string path = p.path(a[0], a[1]);
  const auto mode = static_cast<mode_t>(0600 | a[2]);
  if (!p.may_change(path)) return;
  p.say("chmod({}, {:o}) = {}", p.show(path), mode,
        p.call([&] { return chmod(path.c_str(), mode); }).text());
}
DIFFER_PLAY(fchmod) {
  const int fd = p.fd(a[0]);
  if (p.is_copy_at(fd)) return p.say("fchmod({}, {:o}) = ?", fd, static_cast<mode_t>(0600 | a[1]));
  const auto mode = static_cast<mode_t>(0600 | a[1]);
  p.say("fchmod({}, {:o}) = {}", fd, mode, p.call([&] { return fchmod(fd, mode); }).word());
}

}  // namespace cube::differ
