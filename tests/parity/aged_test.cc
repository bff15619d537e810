// Directories that have not been changed for long. Their listings are kept in memory, and answer
// streams, stats and queries for missing names (shim/calls/directory/mount_stream.h). The other
// tests of names use directories that they have just made.
#include <dirent.h>
#include <glob.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <algorithm>
#include <functional>

#include "cache/base/sys.h"
#include "tests/support/parity_case.h"

namespace {

namespace sys = cube::base::sys;

// Makes raw calls, so that to the library they look like changes by another node.
void age(cube::parity::Case& t, std::initializer_list<const char*> directories) {
  const timespec times[2] = {{1'000'000'000, 0}, {1'000'000'000, 0}};
  for (const char* const name : directories)
    sys::raw(SYS_utimensat, AT_FDCWD, sys::arg(t / name), sys::arg(times), 0);
}
void make_old_tree(cube::parity::Case& t) {
  for (const char* name : {"d", "d/e", "d/empty"}) t.dir(name);
  for (const char* name : {"a.jpg", "d/b.jpg", "d/c.png", "d/x.jpg", "d/e/y.jpg"}) t.file(name, 50);
  t.link("d/l", "b.jpg");
  t.link("d/nowhere", "none");
  age(t, {"", "d", "d/e", "d/empty"});
}
std::vector<std::string> names_of(DIR* stream) {
  std::vector<std::string> names;
  while (const dirent* const entry = readdir(stream))
    names.push_back(std::string(entry->d_name) + " " + std::to_string(entry->d_type));
  std::sort(names.begin(), names.end());
  return names;
}
void show(cube::parity::Case& t, const std::vector<std::string>& lines) {
  for (const std::string& line : lines) t.line(line);
}
void list(cube::parity::Case& t, const char* name) {
  DIR* const stream = STDIO(nullptr, opendir(t / name));
  if (stream == nullptr) return;
  show(t, names_of(stream));
  CALL(closedir(stream));
}

}  // namespace

PARITY(Aged, StreamsAreReadTwice) {
  make_old_tree(t);
  for (int pass = 0; pass < 3; ++pass) {
    for (const char* const name :
         {"d", "d/", "d/.", "d/e", "d/empty", "a.jpg", "d/b.jpg", "d/l", "none", "d/none/x"})
      list(t, name);
  }
}

PARITY(Aged, StreamsGoBackAndForth) {
  make_old_tree(t);
  list(t, "d");
  DIR* const stream = STDIO(nullptr, opendir(t / "d"));
  std::vector<std::string> names;
  std::vector<long> places;
  while (true) {
    places.push_back(telldir(stream));
    const dirent* const entry = readdir(stream);
    if (entry == nullptr) break;
    names.emplace_back(entry->d_name);
  }
  t.line(std::to_string(names.size()) + " names");
  for (std::size_t i = names.size(); i-- > 0;) {
    seekdir(stream, places[i]);
    if (telldir(stream) != places[i]) t.line("another place");
    const dirent64* const entry = readdir64(stream);
    if (entry == nullptr || names[i] != entry->d_name)
      t.line("another name at place " + std::to_string(i));
  }
  // In the middle of the stream, the program asks for its fd.
  seekdir(stream, places[2]);
  const int fd = dirfd(stream);
  struct stat st {};
  CALL(fstat(fd, &st));
  t.line(S_ISDIR(st.st_mode) ? "a directory" : "none");
  if (telldir(stream) != places[2]) t.line("another place by dirfd");
  t.expect_served(CALL(openat(fd, "b.jpg", O_RDONLY)));
  CALL(fstatat(fd, "none", &st, 0));
  for (std::size_t i = 2; i < names.size(); ++i) {
    const dirent* const entry = readdir(stream);
    if (entry == nullptr || names[i] != entry->d_name)
      t.line("another name behind dirfd, " + std::to_string(i));
  }
  t.line(readdir(stream) == nullptr ? "the end" : "more");
  rewinddir(stream);
  t.line(std::to_string(names_of(stream).size()) + " names again");
  CALL(closedir(stream));
}

PARITY(Aged, AnEntryStaysValidWhenTheProgramAsksForTheFd) {
  make_old_tree(t);
  list(t, "d");
  DIR* const stream = STDIO(nullptr, opendir(t / "d"));
  while (const dirent* const entry = readdir(stream)) {
    const int fd = dirfd(stream);
    struct stat st {};
    CALL(fstatat(fd, entry->d_name, &st, 0));
    t.line(entry->d_name);
  }
  CALL(closedir(stream));
}

PARITY(Aged, RewoundStreamsShowPresentEntries) {
  make_old_tree(t);
  list(t, "d");
  DIR* const stream = STDIO(nullptr, opendir(t / "d"));
  readdir(stream);
  CALL(close(CALL(open(t / "d/new", O_CREAT | O_WRONLY, 0600))));
  CALL(unlink(t / "d/c.png"));
  rewinddir(stream);
  show(t, names_of(stream));
  CALL(closedir(stream));
  list(t, "d");
}

namespace {

// Makes a raw call, which the library does not see, because the library may overlook a name made by
// other processes for a second.
bool is_there(const char* path, struct stat& st) {
  return sys::raw(SYS_newfstatat, AT_FDCWD, sys::arg(path), sys::arg(&st), 0) == 0;
}

// Renames the directory from `from` to `to` while a stream over it is open, and then asks for the
// stream's fd.
void move_under_stream(cube::parity::Case& t, const char* from, const char* to,
                       const std::function<void()>& move) {
  age(t, {"", "d", "d/e", "d/empty"});
  list(t, from);
  DIR* const stream = STDIO(nullptr, opendir(t / from));
  std::vector<std::string> names;
  for (int i = 0; i < 2; ++i) {
    if (const dirent* const entry = readdir(stream)) names.emplace_back(entry->d_name);
  }
  move();
  const long place = telldir(stream);
  if (const dirent* const entry = readdir(stream)) names.emplace_back(entry->d_name);
  seekdir(stream, place);
  struct stat there {
  }, here{};
  const int fd = dirfd(stream);
  CALL(is_there(t / to, there));
  CALL(fstat(fd, &here));
  t.line(here.st_ino == there.st_ino && here.st_dev == there.st_dev ? "the same directory"
                                                                    : "another directory");
  CALL(faccessat(fd, "b.jpg", F_OK, 0));
  CALL(close(CALL(openat(fd, "made", O_CREAT | O_WRONLY, 0600))));
  CALL(is_there((std::string(t / to) + "/made").c_str(), there));
  CALL(unlinkat(fd, "made", 0));
  while (const dirent* const entry = readdir(stream)) {
    if (strcmp(entry->d_name, "made") != 0) names.emplace_back(entry->d_name);
  }
  std::sort(names.begin(), names.end());
  show(t, names);
  CALL(closedir(stream));
  list(t, to);
}

}  // namespace

PARITY(Aged, StreamsOverDirectoriesThatMove) {
  make_old_tree(t);
  t.dir("other");
  t.link("alias", "d");
  const auto moves = [&](const char* from, const char* to) {
    return [&t, from, to] { CALL(rename(t / from, t / to)); };
  };
  move_under_stream(t, "d", "d2", moves("d", "d2"));
  move_under_stream(t, "d2/e", "d/e", moves("d2", "d"));
  move_under_stream(t, "alias/e", "other/f", moves("d/e", "other/f"));
  move_under_stream(t, "other/f", "d/e", moves("alias/../other/f", "alias/e"));
  move_under_stream(t, "alias", "d", [&] {
    CALL(unlink(t / "alias"));
    CALL(symlink("other", t / "alias"));
  });
  move_under_stream(t, "d", "other", [&] {
    CALL(renameat2(AT_FDCWD, t / "d", AT_FDCWD, t / "other", RENAME_EXCHANGE));
  });
  CALL(renameat2(AT_FDCWD, t / "d", AT_FDCWD, t / "other", RENAME_EXCHANGE));
  // The raw calls are not seen by the library, and a child makes them in place of foreign
  // processes.
  const auto others = [&](const char* from, const char* to) {
    return [&t, from, to] {
      t.in_child([&] {
        CALL(sys::raw(SYS_renameat, AT_FDCWD, sys::arg(t / from), AT_FDCWD, sys::arg(t / to)) == 0);
      });
    };
  };
  move_under_stream(t, "d", "d2", others("d", "d2"));
  move_under_stream(t, "d2/e", "d/e", others("d2", "d"));
  move_under_stream(t, "d/e", "other/e", others("d/e", "other/e"));
  // The directory is removed, and another one takes its place.
  list(t, "d/empty");
  DIR* const stream = STDIO(nullptr, opendir(t / "d/empty"));
  CALL(rmdir(t / "d/empty"));
  struct stat st {};
  CALL(fstat(dirfd(stream), &st));
  t.line("links " + std::to_string(st.st_nlink));
  CALL(openat(dirfd(stream), "x", O_CREAT | O_WRONLY, 0600));
  CALL(closedir(stream));
}

PARITY(Aged, ChildrenGoOnWithAStream) {
  make_old_tree(t);
  list(t, "d");
  DIR* const stream = STDIO(nullptr, opendir(t / "d"));
  readdir(stream);
  t.in_child([&] {
    t.line(std::to_string(names_of(stream).size()) + " in the child");
    rewinddir(stream);
    t.line(std::to_string(names_of(stream).size()) + " in the child from the begin");
    CALL(closedir(stream));
  });
  t.line(std::to_string(names_of(stream).size()) + " in the parent");
  CALL(closedir(stream));
}

PARITY(Aged, StreamsOutliveAChangeOfIdentity) {
  make_old_tree(t);
  list(t, "d");
  t.in_child([&] {
    DIR* const stream = STDIO(nullptr, opendir(t / "d"));
    readdir(stream);
    readdir(stream);
    // The library serves nothing after this call.
    CALL(unshare(CLONE_FS));
    t.line(std::to_string(names_of(stream).size()) + " names are left");
    CALL(closedir(stream));
    list(t, "d/e");
    list(t, "d");
  });
}

PARITY(Aged, StatsOfListedNames) {
  make_old_tree(t);
  list(t, "d");
  struct stat st {};
  struct statx x {};
  for (int pass = 0; pass < 6; ++pass) {
    for (const char* const name : {"d", "d/e", "d/b.jpg", "d/c.png", "d/x.jpg", "d/l", "d/nowhere",
                                   "d/none", "d/none/x", "d/b.jpg/x", "d/.none", "d/", "d/b.jpg/",
                                   "d/none/", "d//b.jpg", "d/./none", "d/e/../b.jpg"}) {
      if (CALL(stat(t / name, &st)) == 0) t.stat(name, st, t / name);
      if (CALL(lstat(t / name, &st)) == 0) t.stat(name, st, t / name, false);
      CALL(statx(AT_FDCWD, t / name, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &x));
      CALL(access(t / name, F_OK));
      CALL(access(t / name, R_OK));
      CALL(faccessat(AT_FDCWD, t / name, F_OK, AT_SYMLINK_NOFOLLOW));
      CALL(open(t / name, O_RDONLY | O_DIRECTORY));
    }
  }
  CALL(open(t / "d/none", O_RDONLY));
  CALL(open(t / "d/none", O_WRONLY));
  CALL(open(t / "d/none/x", O_RDONLY));
}

PARITY(Aged, ChangesAreSeenImmediately) {
  make_old_tree(t);
  struct stat st {};
  const auto look = [&](const char* name) {
    list(t, "d");
    for (int i = 0; i < 6; ++i) {
      if (CALL(stat(t / name, &st)) == 0) t.stat(name, st, t / name);
      CALL(lstat(t / name, &st));
      CALL(access(t / name, F_OK));
    }
    age(t, {"", "d", "d/e"});
    list(t, "d");
  };
  look("d/made");
  CALL(close(CALL(open(t / "d/made", O_CREAT | O_WRONLY, 0640))));
  look("d/made");
  CALL(rename(t / "d/made", t / "d/moved"));
  look("d/made");
  look("d/moved");
  CALL(link(t / "d/moved", t / "d/twin"));
  look("d/twin");
  CALL(truncate(t / "d/twin", 7));
  look("d/moved");
  CALL(chmod(t / "d/moved", 0600));
  look("d/twin");
  CALL(symlink("moved", t / "d/sym"));
  look("d/sym");
  CALL(unlink(t / "d/twin"));
  look("d/twin");
  look("d/moved");
  CALL(mkdir(t / "d/dir", 0700));
  look("d/dir");
  CALL(rmdir(t / "d/dir"));
  look("d/dir");
  CALL(mkfifo(t / "d/fifo", 0600));
  look("d/fifo");
  CALL(rename(t / "d", t / "other"));
  look("d/moved");
  list(t, "other");
  CALL(rename(t / "other", t / "d"));
  look("d/moved");
}

PARITY(Aged, ChangesByOtherCallsAreSeenImmediately) {
  make_old_tree(t);
  t.link("d/away", "e/target");
  struct stat st {};
  const auto look = [&](const char* directory, const char* name) {
    age(t, {"", "d", "d/e"});
    list(t, directory);
    for (int i = 0; i < 6; ++i) {
      if (CALL(stat(t / name, &st)) == 0) t.stat(name, st, t / name);
      CALL(access(t / name, F_OK));
    }
    list(t, directory);
  };
  // The name is made in the directory to which the link leads.
  look("d/e", "d/e/target");
  CALL(close(CALL(open(t / "d/away", O_CREAT | O_WRONLY, 0640))));
  look("d/e", "d/e/target");
  look("d", "d/spawned");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, t / "d/spawned", O_CREAT | O_RDONLY, 0640);
  pid_t child = 0;
  char name[] = "true";
  char* const words[] = {name, nullptr};
  CALL(posix_spawnp(&child, "true", &actions, nullptr, words, environ));
  CALL(waitpid(child, nullptr, 0) == child);
  posix_spawn_file_actions_destroy(&actions);
  look("d", "d/spawned");
  look("d", "d/dir");
  CALL(syscall(SYS_mkdirat, AT_FDCWD, t / "d/dir", 0700));
  look("d", "d/dir");
  CALL(syscall(SYS_unlinkat, AT_FDCWD, t / "d/dir", AT_REMOVEDIR));
  look("d", "d/dir");
  CALL(syscall(SYS_symlinkat, "b.jpg", AT_FDCWD, t / "d/sym"));
  look("d", "d/sym");
  look("d", "d/nod");
  CALL(syscall(SYS_mknodat, AT_FDCWD, t / "d/nod", S_IFREG | 0600, 0));
  look("d", "d/nod");
  look("d", "d/c.png");
  child = vfork();
  if (child == 0) _exit(chmod(t / "d/c.png", 0600) == 0 ? 0 : 1);
  CALL(waitpid(child, nullptr, 0) == child);
  look("d", "d/c.png");
  // Neither name can be reached by these paths after the move.
  look("d", "d/moved");
  CALL(rename(t / "d/e/../e", t / "d/e/../moved"));
  look("d", "d/moved");
  look("d", "d/e");
}

namespace {

// Binds a socket to a name. `room`: the number of bytes of the path that the kernel gets. The last
// byte need not be zero.
int bind_to(const char* path, bool by_number, std::size_t room = sizeof(sockaddr_un::sun_path)) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  strncpy(address.sun_path, path, sizeof address.sun_path - 1);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + room);
  const int result = by_number ? static_cast<int>(syscall(SYS_bind, fd, &address, length))
                               : bind(fd, reinterpret_cast<const sockaddr*>(&address), length);
  close(fd);
  return result;
}

}  // namespace

PARITY(Aged, NewNamesAreSeenImmediately) {
  make_old_tree(t);
  CALL(chdir(t / "d"));
  const auto see = [&](const char* name, const std::function<int()>& make) {
    age(t, {"", "d", "d/e"});
    struct stat st {};
    for (int i = 0; i < 4; ++i) {
      list(t, "d");
      CALL(lstat(name, &st));
      CALL(access((std::string(t / "d/") + name).c_str(), F_OK));
    }
    t.line(std::string(name) + " " + std::to_string(make()));
    if (CALL(lstat(name, &st)) == 0)
      t.stat(name, st, (std::string(t / "d/") + name).c_str(), false);
    CALL(access((std::string(t / "d/") + name).c_str(), F_OK));
    list(t, "d");
  };
  see("socket", [] { return bind_to("socket", false); });
  see("short", [] { return bind_to("short", false, 5); });
  see("number", [] { return bind_to("number", true); });
  see("socket", [] { return bind_to("socket", false); });
  see("none", [] { return bind_to("nowhere/none", false); });
  see("fifo", [] { return mkfifo("fifo", 0600); });
  see("fifo2", [&] { return mkfifoat(AT_FDCWD, t / "d/fifo2", 0600); });
  see("nod", [] { return mknod("nod", S_IFREG | 0600, 0); });
  see("nod2", [&] { return mknodat(AT_FDCWD, t / "d/nod2", S_IFIFO | 0600, 0); });
  see("hard", [&] { return link(t / "a.jpg", "hard"); });
  see("soft", [] { return symlink("hard", "soft"); });
  see("unnamed", [&] {
    const int fd = open(t / "d/e", O_TMPFILE | O_WRONLY, 0600);
    const int result = linkat(AT_FDCWD, ("/proc/self/fd/" + std::to_string(fd)).c_str(), AT_FDCWD,
                              "unnamed", AT_SYMLINK_FOLLOW);
    close(fd);
    return result;
  });
  see("unnamed2", [&] {
    const int fd = open(t / "d", O_TMPFILE | O_WRONLY, 0600);
    const int result = linkat(fd, "", AT_FDCWD, t / "d/unnamed2", AT_EMPTY_PATH);
    close(fd);
    return result;
  });
  see("e", [&] { return renameat2(AT_FDCWD, "e", AT_FDCWD, t / "a.jpg", RENAME_EXCHANGE); });
  see("moved", [] { return renameat2(AT_FDCWD, "hard", AT_FDCWD, "moved", RENAME_NOREPLACE); });
  see("tempAAAAAA", [] {
    char name[] = "tempXXXXXX";
    const int fd = mkstemp(name);
    close(fd);
    return rename(name, "tempAAAAAA");
  });
  CALL(chdir("/"));
}

PARITY(Aged, Globs) {
  make_old_tree(t);
  list(t, "d");
  for (int pass = 0; pass < 2; ++pass) {
    for (const char* const pattern : {"d/*.jpg", "*/*", "d/*/", "d/[bc]*", "d/none*"}) {
      glob_t found{};
      CALL(glob(t / pattern, GLOB_MARK, nullptr, &found));
      for (std::size_t i = 0; i < found.gl_pathc; ++i) t.path("glob", found.gl_pathv[i]);
      globfree(&found);
    }
    dirent** entries = nullptr;
    const int n = CALL(scandir(t / "d", &entries, nullptr, alphasort));
    for (int i = 0; i < n; ++i) {
      t.line(entries[i]->d_name);
      free(entries[i]);
    }
    free(entries);
  }
}

namespace {

// After this many queries, threads gather the stats and targets, provided that a CPU is free for
// them.
constexpr int k_many_looks = 30;

void show_link(cube::parity::Case& t, const char* name) {
  char target[PATH_MAX];
  for (const std::size_t room : {std::size_t{1}, std::size_t{4}, sizeof target}) {
    const ssize_t n = CALL(readlink(t / name, target, room));
    if (n >= 0) t.path(name, std::string(target, static_cast<std::size_t>(n)).c_str());
  }
  errno = 0;
  char* const real = realpath(t / name, target);
  t.path(name, real != nullptr ? real : strerror(errno));
  char* const made = canonicalize_file_name(t / name);
  t.path(name, made != nullptr ? made : "none");
  free(made);
}

}  // namespace

PARITY(Aged, LinksKeepTheirTargets) {
  make_old_tree(t);
  const std::pair<const char*, const char*> links[] = {
      {"d/up", "../a.jpg"},
      {"d/e/far", "../../d/c.png"},
      {"d/dots", ".././d//b.jpg"},
      {"d/e/dir", ".."},
      {"d/chain", "up"},
      {"d/loop", "loop"},
      {"d/turn", "e/../x.jpg"},
      {"d/through", "e/dir/x.jpg"},
      {"d/slash", "e/"},
      {"d/file_slash", "b.jpg/"},
      {"d/above", "../../../../../../../../../../../etc"},
      {"d/e/dir2", "../e"}};
  for (const auto& [name, target] : links) t.link(name, target);
  t.link("d/whole", t / "d/e/y.jpg");
  t.link("d/outside", "/etc/hostname");
  age(t, {"", "d", "d/e"});
  char target[PATH_MAX];
  struct stat st {};
  for (int pass = 0; pass < k_many_looks; ++pass) {
    for (const char* const name :
         {"d/up",      "d/e/far",      "d/dots",    "d/e/dir",       "d/chain",
          "d/loop",    "d/turn",       "d/through", "d/slash",       "d/file_slash",
          "d/above",   "d/e/dir2/far", "d/whole",   "d/outside",     "d/l",
          "d/nowhere", "d/b.jpg",      "d/none",    "d/none/x",      "d/b.jpg/x",
          "d",         "d/e/",         "d/up/",     "d/e/dir/e/far", "."}) {
      show_link(t, name);
      if (CALL(stat(t / name, &st)) == 0) t.stat(name, st, t / name);
      CALL(lstat(t / name, &st));
    }
    const int directory = CALL(open(t / "d", O_RDONLY | O_DIRECTORY));
    CALL(readlinkat(directory, "up", target, sizeof target));
    CALL(readlinkat(directory, "e/far", target, 3));
    CALL(readlinkat(directory, "b.jpg", target, sizeof target));
    CALL(readlinkat(directory, "", target, sizeof target));
    CALL(close(directory));
    CALL(readlink(t / "d/up", target, 0));
    CALL(readlink(t / "d/up", nullptr, 5));
    CALL(readlink(t / "d/up", target, std::size_t{1} << 31));
    CALL(lstat(t.root().c_str(), &st));
  }
}

PARITY(Aged, ChangedLinksAreSeenImmediately) {
  make_old_tree(t);
  struct stat st {};
  const auto look = [&] {
    age(t, {"", "d", "d/e"});
    list(t, "d");
    for (int pass = 0; pass < k_many_looks; ++pass) {
      for (const char* const name : {"d/l", "d/nowhere", "d/b.jpg", "d/c.png", "d/e"}) {
        show_link(t, name);
        CALL(stat(t / name, &st));
      }
    }
  };
  look();
  CALL(unlink(t / "d/l"));
  CALL(symlink("c.png", t / "d/l"));
  show_link(t, "d/l");
  look();
  CALL(symlink("x.jpg", t / "d/other"));
  CALL(rename(t / "d/other", t / "d/l"));
  show_link(t, "d/l");
  look();
  CALL(rename(t / "d/x.jpg", t / "d/none"));
  show_link(t, "d/l");
  show_link(t, "d/nowhere");
  look();
  CALL(renameat2(AT_FDCWD, t / "d/l", AT_FDCWD, t / "d/b.jpg", RENAME_EXCHANGE));
  show_link(t, "d/b.jpg");
  look();
  CALL(rename(t / "d/e", t / "d/f"));
  CALL(symlink("f", t / "d/e"));
  show_link(t, "d/e/y.jpg");
  show_link(t, "d/f/y.jpg");
  look();
  CALL(rename(t / "d", t / "moved"));
  CALL(symlink("moved", t / "d"));
  show_link(t, "d/l");
  show_link(t, "moved/l");
  look();
}

namespace {

int wants_none(const dirent*) {
  errno = EDOM;
  return 0;
}
int is_picture(const dirent* entry) {
  errno = EDOM;
  return strstr(entry->d_name, ".jpg") != nullptr ? 1 : 0;
}
void show_list(cube::parity::Case& t, int n, dirent**& entries) {
  for (int i = 0; i < n; ++i) {
    t.line(std::string(entries[i]->d_name) + " " + std::to_string(entries[i]->d_type));
    free(entries[i]);
  }
  if (n >= 0) free(entries);
}

}  // namespace

PARITY(Aged, ListsOfNames) {
  make_old_tree(t);
  for (int pass = 0; pass < 3; ++pass) {
    for (const char* const name :
         {"d", "d/", "d/e", "d/empty", "d/e/..", "a.jpg", "d/l", "none", "d/none/x", ""}) {
      for (const auto wanted :
           {static_cast<int (*)(const dirent*)>(nullptr), &wants_none, &is_picture}) {
        dirent** entries = nullptr;
        errno = ERANGE;
        int n = scandir(t / name, &entries, wanted, alphasort);
        t.line(std::string(name) + " " + std::to_string(n) + " " + strerror(errno));
        show_list(t, n, entries);
        n = CALL(scandir64(t / name, reinterpret_cast<dirent64***>(&entries),
                           reinterpret_cast<int (*)(const dirent64*)>(wanted), versionsort64));
        show_list(t, n, entries);
      }
    }
    // The order of the entries in the directory itself. libc keeps it unless it has to sort.
    dirent** entries = nullptr;
    std::vector<std::string> names;
    DIR* const stream = STDIO(nullptr, opendir(t / "d"));
    while (const dirent* const entry = readdir(stream)) names.emplace_back(entry->d_name);
    CALL(closedir(stream));
    const int n = CALL(scandir(t / "d", &entries, nullptr, nullptr));
    for (int i = 0; i < n; ++i) {
      if (names[static_cast<std::size_t>(i)] != entries[i]->d_name) t.line("another order");
      free(entries[i]);
    }
    free(entries);
    const int directory = CALL(open(t / "d", O_RDONLY | O_DIRECTORY));
    for (const char* const name :
         {".", "e", "e/", "../d", "b.jpg", "none", "", "/proc/self/task/none"}) {
      const int count = CALL(scandirat(directory, name, &entries, nullptr, alphasort));
      show_list(t, count, entries);
    }
    CALL(close(directory));
    CALL(scandirat(directory, "e", &entries, nullptr, alphasort));
    CALL(chdir(t / "d"));
    {
      const int count = CALL(scandir("e", &entries, nullptr, alphasort));
      show_list(t, count, entries);
    }
    {
      const int count = CALL(scandir(".", &entries, nullptr, alphasort));
      show_list(t, count, entries);
    }
    for (const char* const pattern :
         {"*", "e/*", "*/y*", "[", "l", "nowhere", "\\l", "n*", "e/../*.png", "{b,c}.*"}) {
      for (const int flags : {0, GLOB_MARK | GLOB_BRACE, GLOB_ONLYDIR | GLOB_NOSORT, GLOB_NOCHECK,
                              GLOB_ERR | GLOB_PERIOD}) {
        glob_t found{};
        CALL(glob(pattern, flags, nullptr, &found));
        std::vector<std::string> all(found.gl_pathv, found.gl_pathv + found.gl_pathc);
        std::sort(all.begin(), all.end());
        show(t, all);
        t.line("flags " + std::to_string(found.gl_flags));
        globfree(&found);
      }
    }
    CALL(chdir("/"));
  }
  list(t, "d");
  CALL(close(CALL(open(t / "d/new.jpg", O_CREAT | O_WRONLY, 0600))));
  dirent** entries = nullptr;
  {
    const int count = CALL(scandir(t / "d", &entries, is_picture, alphasort));
    show_list(t, count, entries);
  }
  glob_t found{};
  CALL(glob(t / "d/*.jpg", 0, nullptr, &found));
  for (std::size_t i = 0; i < found.gl_pathc; ++i) t.path("glob", found.gl_pathv[i]);
  globfree(&found);
}
