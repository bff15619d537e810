// Opens files by every kind of name and with all kinds of flags.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/differential/player.h"

namespace cube::differ {
namespace {

constexpr mode_t k_mode = 0640;

void keep(Player& p, std::int64_t slot, const Result& opened) {
  if (!opened.failed()) p.fd(slot) = static_cast<int>(opened.value);
}
bool may_truncate(std::int64_t flags) { return (flags & O_TRUNC) != 0; }

void open_path(Player& p, const Arguments& a, const std::string& path) {
  const int flags = static_cast<int>(a[3]);
  if (!p.may_open(AT_FDCWD, path, flags)) return;
  if (may_truncate(flags)) p.content_changed(path.c_str());
  const Result r = p.call([&] { return open(path.c_str(), flags, k_mode); });
  p.say("open({}, 0{:o}) = {}", p.show(path), flags, r.text());
  keep(p, a[0], r);
}

}  // namespace

DIFFER_PLAY(open) { open_path(p, a, p.path(a[1], a[2])); }
DIFFER_PLAY(open_any) { open_path(p, a, p.path(a[1], a[2])); }
DIFFER_PLAY(open_new) { open_path(p, a, p.path(a[1], a[2])); }

DIFFER_PLAY(openat) {
  const int dir = p.fd(a[1]), flags = static_cast<int>(a[4]);
  std::string path = p.path(a[2], a[3]);
  // `dir` can be any directory, so the path is sometimes only the last component.
  if (a[3] % 2 == 0 && path.starts_with(p.tree().root + "/"))
    path = path.substr(path.rfind('/') + 1);
  if (may_truncate(flags) && dir < 0) return;
  if (!p.may_open(dir, path, flags)) return;
  if (may_truncate(flags)) {
    for (const Entry& entry : entries()) p.content_changed(p.tree().path_of(entry).c_str());
  }
  const Result r = p.call([&] { return openat(dir, path.c_str(), flags, k_mode); });
  p.say("openat({}, {}, 0{:o}) = {}", dir, p.show(path), flags, r.text());
  keep(p, a[0], r);
}

DIFFER_PLAY(creat) {
  const std::string path = p.path(a[1], a[2]);
  if (!p.may_open(AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC)) return;
  p.content_changed(path.c_str());
  const Result r = p.call([&] { return creat(path.c_str(), k_mode); });
  p.say("creat({}) = {}", p.show(path), r.text());
  keep(p, a[0], r);
}

DIFFER_PLAY(open_fd_name) {
  int flags = static_cast<int>(a[2]) & ~(O_CREAT | O_EXCL | O_TRUNC);
  // A copy in memory is not on a read-only mount. Under such a name, a directory of a pack is empty
  // (SEMANTICS, Packs).
  if (p.tree().is_packed()) flags &= ~(O_ACCMODE | O_DIRECT | O_NOATIME);
  if (p.is_packed_directory(p.fd(a[1]))) return;
  const std::string path =
      (a[2] % 2 == 0 ? "/proc/self/fd/" : "/dev/fd/") + std::to_string(p.fd(a[1]));
  const Result r = p.call([&] { return open(path.c_str(), flags | O_NONBLOCK); });
  p.say("open({}, 0{:o}) = {}", path, flags, r.text());
  keep(p, a[0], r);
}

DIFFER_PLAY(open_directory) {
  const std::string path = p.path(a[1], a[2]);
  const Result r = p.call(
      [&] { return open(path.c_str(), O_RDONLY | (a[2] % 2 == 0 ? O_DIRECTORY : 0) | O_CLOEXEC); });
  p.say("open directory {} = {}", p.show(path), r.text());
  keep(p, a[0], r);
}

DIFFER_PLAY(raw_open) {
  const int flags = static_cast<int>(a[3]) & ~O_TRUNC;
  const std::string path = p.path(a[1], a[2]);
  if (!p.may_open(AT_FDCWD, path, flags)) return;
  const Result r =
      p.call([&] { return syscall(SYS_openat, AT_FDCWD, path.c_str(), flags, k_mode); });
  p.say("syscall openat({}, 0{:o}) = {}", p.show(path), flags, r.text());
  keep(p, a[0], r);
}

}  // namespace cube::differ
