// Directories: where paths start, and what directories list.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <set>

#include "tests/differential/player.h"

namespace cube::differ {
namespace {

std::string list(Player& p, DIR* directory, int most) {
  // The order is undefined: names are sorted, and only whole listings are shown name by name.
  std::set<std::string> names;
  int count = 0;
  for (; count < most; ++count) {
    const dirent* const entry = readdir(directory);
    if (entry == nullptr) break;
    names.insert(fmt::format("{}:{}", entry->d_name, entry->d_type));
  }
  std::string text = std::to_string(count);
  if (count == most) return text;
  for (const std::string& name : names) text += " " + p.show(name);
  return text;
}

// In a directory of a pack, a forked child has its own position (SEMANTICS, Packs).
bool may_list(Player& p, int fd) { return !p.is_child() || !p.is_packed_directory(fd); }

}  // namespace

DIFFER_PLAY(chdir) {
  const std::string path = a[1] % 3 == 0 ? p.tree().root : p.path(a[0], a[1]);
  // The kernel can enter the directories that exist for it (SEMANTICS, Packs). The links to them do
  // not exist for it.
  const bool has_one = a[1] % 3 == 0 || (Player::entry(a[0]).type == EntryType::directory &&
                                         a[1] != 8 && a[1] != 12);
  if (p.tree().is_packed() && !has_one) return;
  p.say("chdir({}) = {}", p.show(path), p.call([&] { return chdir(path.c_str()); }).text());
}
DIFFER_PLAY(fchdir) {
  const int fd = p.fd(a[0]);
  p.say("fchdir({}) = {}", fd, p.call([&] { return fchdir(fd); }).text());
}
DIFFER_PLAY(getcwd) {
  char path[4096];
  errno = 0;
  p.say("getcwd = {}", getcwd(path, sizeof path) != nullptr ? p.show(path) : error_name(errno));
}
DIFFER_PLAY(opendir) {
  DIR*& directory = p.directory(a[0]);
  if (directory != nullptr) return;
  const std::string path = a[2] % 3 == 0 ? p.tree().root : p.path(a[1], a[2]);
  errno = 0;
  directory = opendir(path.c_str());
  p.say("opendir({}) = {}", p.show(path),
        directory != nullptr ? std::to_string(dirfd(directory)) : error_name(errno));
}
DIFFER_PLAY(fdopendir) {
  DIR*& directory = p.directory(a[0]);
  if (directory != nullptr) return;
  const int fd = p.fd(a[1]);
  errno = 0;
  directory = fdopendir(fd);
  p.say("fdopendir({}) = {}", fd, directory != nullptr ? "there" : error_name(errno));
}
DIFFER_PLAY(readdir) {
  DIR* const directory = p.directory(a[0]);
  if (directory == nullptr || !may_list(p, dirfd(directory))) return;
  // A pack lists in another order than a plain directory, so different names remain after a part of
  // the listing.
  const bool is_whole = p.tree().is_packed() && a[1] >= 6;
  if (a[1] == 0 || is_whole) rewinddir(directory);
  const std::string text = list(p, directory, a[1] < 3 ? 2 : 1000);
  p.say("readdir {}: {}", a[0],
        is_whole || !p.tree().is_packed() ? text : text.substr(0, text.find(' ')));
}
DIFFER_PLAY(closedir) {
  DIR*& directory = p.directory(a[0]);
  if (directory == nullptr) return;
  p.say("closedir {} = {}", a[0], p.call([&] { return closedir(directory); }).text());
  directory = nullptr;
}
DIFFER_PLAY(dirfd) {
  DIR* const directory = p.directory(a[0]);
  if (directory == nullptr) return;
  p.fd(a[1]) = dirfd(directory);
  p.say("dirfd {} = {}", a[0], p.fd(a[1]));
}
DIFFER_PLAY(getdents) {
  const int fd = p.fd(a[0]);
  if (!may_list(p, fd)) return;
  alignas(8) char names[8192];
  const Result r = p.call([&] { return getdents64(fd, names, sizeof names); });
  // Neither the length of the tree's own name nor the lengths of the records differ between trees.
  p.say("getdents64({}) = {}", fd, r.text());
}

}  // namespace cube::differ
