// All ways to write a path: with dots, slashes and links before "..", relative to the working
// directory or to a directory fd.
#include <dirent.h>

#include "tests/support/parity_case.h"

namespace {

void read_one(cube::parity::Case& t, const char* label, int fd, bool served = true) {
  t.line(label);
  if (fd < 0) return;
  if (served) t.expect_served(fd);
  char got[16] = {};
  CALL(read(fd, got, sizeof got));
  t.bytes("got", got, sizeof got);
  CALL(close(fd));
}

void make_tree(cube::parity::Case& t) {
  t.dir("d");
  t.dir("d/e");
  t.dir("other");
  t.file("a");
  t.file("d/b");
  t.file("d/e/c");
  t.file("other/c");
  t.link("to_e", "d/e");
  t.link("d/up", "..");
  t.link("d/to_other", "../other");
}

}  // namespace

PARITY(Path, DotsAndSlashesMeanTheSameFile) {
  make_tree(t);
  for (const char* name : {"./a",
                           ".//a",
                           "/a",
                           "//a",
                           "././a",
                           "d/./b",
                           "d//b",
                           "d/.//./b",
                           "d/e/../b",
                           "d/../a",
                           "d/e/../../a",
                           "./d/../d/./e/..//b",
                           "to_e/c",
                           "to_e/../b",
                           "to_e/../e/c",
                           "d/up/a",
                           "d/up/d/b",
                           "d/to_other/c",
                           "d/to_other/../a",
                           "d/up/../a"}) {
    const int fd = CALL(open(t / name, O_RDONLY));
    read_one(t, name, fd, false);
  }
  for (const char* name :
       {"d/..", "d/.", "d/", "to_e/..", "a/../a", "none/../a", "a/./", "d/b/..", "d/b/../b"}) {
    const int fd = CALL(open(t / name, O_RDONLY));
    t.line(name);
    if (fd >= 0) CALL(close(fd));
  }
}

PARITY(Path, StatOfOddSpellings) {
  make_tree(t);
  for (const char* name : {"./a", "//a", "d/../a", "to_e/../b", "d/.", "d/..", "a/", "a/.", "to_e",
                           "to_e/", "d/up", "d/up/"}) {
    struct stat st {};
    t.line(name);
    if (CALL(stat(t / name, &st)) == 0) t.stat("stat", st, t / name);
    if (CALL(lstat(t / name, &st)) == 0) t.stat("lstat", st, t / name, false);
    CALL(access(t / name, R_OK));
  }
}

PARITY(Path, RelativeToTheWorkingDirectory) {
  make_tree(t);
  CALL(chdir(t / ""));
  for (const char* name : {"a", "./a", "d/b", "d/../a", "to_e/../b", "to_e/c", ".//d//b"}) {
    const int fd = CALL(open(name, O_RDONLY));
    read_one(t, name, fd);
  }
  CALL(chdir("d"));
  for (const char* name :
       {"b", "../a", "e/c", "up/a", "../d/b", "./../a", "e/../b", "e/../../a", "to_other/../a"}) {
    const int fd = CALL(open(name, O_RDONLY));
    read_one(t, name, fd);
  }
  CALL(open("a", O_RDONLY));
  CALL(chdir("/"));
  CALL(open("b", O_RDONLY));
  const std::string below_root = t.root().substr(1) + "/a";
  read_one(t, "below /", CALL(open(below_root.c_str(), O_RDONLY)));
  CALL(chdir(t / "to_e"));
  read_one(t, "through a link", CALL(open("c", O_RDONLY)), false);
  read_one(t, "through a link, up", CALL(open("../b", O_RDONLY)), false);
}

PARITY(Path, RelativeToADirectoryFd) {
  make_tree(t);
  const int dir = CALL(open(t / "d", O_RDONLY | O_DIRECTORY));
  for (const char* name : {"b", "./b", "e/c", "../a", "e/../b", "up/a", "none", "b/", ".", ".."}) {
    t.line(name);
    const int fd = CALL(openat(dir, name, O_RDONLY));
    if (fd < 0) continue;
    char got[16] = {};
    CALL(read(fd, got, sizeof got));
    t.bytes("got", got, sizeof got);
    CALL(close(fd));
  }
  read_one(t, "served", CALL(openat(dir, "b", O_RDONLY)));
  struct stat st {};
  CALL(fstatat(dir, "b", &st, 0));
  t.stat("fstatat", st, t / "d/b");
  CALL(faccessat(dir, "b", R_OK, 0));
  CALL(faccessat(dir, "none", R_OK, 0));
  CALL(close(dir));
  CALL(openat(dir, "b", O_RDONLY));
  EXPECT_EQ(errno, EBADF);
}

PARITY(Path, DirectoryFdsOfEveryKind) {
  make_tree(t);
  const int plain = CALL(open(t / "d", O_RDONLY));
  read_one(t, "O_RDONLY", CALL(openat(plain, "b", O_RDONLY)), false);
  const int by_path = CALL(open(t / "d", O_PATH));
  read_one(t, "O_PATH", CALL(openat(by_path, "b", O_RDONLY)), false);
  const int copy = CALL(dup(plain));
  read_one(t, "dup", CALL(openat(copy, "b", O_RDONLY)), false);
  CALL(dup2(plain, 40));
  read_one(t, "dup2", CALL(openat(40, "b", O_RDONLY)), false);
  DIR* const stream = opendir(t / "d");
  read_one(t, "opendir", CALL(openat(dirfd(stream), "b", O_RDONLY)), false);
  CALL(closedir(stream));
  const int inner = CALL(openat(plain, "e", O_RDONLY | O_DIRECTORY));
  read_one(t, "nested", CALL(openat(inner, "c", O_RDONLY)), false);
  for (const int fd : {plain, by_path, copy, 40, inner}) CALL(close(fd));
}

PARITY(Path, FdReusedForAnotherDirectoryMeansThatOne) {
  t.dir("x");
  t.dir("y");
  t.text("x/f", "in x");
  t.text("y/f", "in y");
  int dir = CALL(open(t / "x", O_RDONLY | O_DIRECTORY));
  read_one(t, "x", CALL(openat(dir, "f", O_RDONLY)));
  CALL(close(dir));
  dir = CALL(open(t / "y", O_RDONLY | O_DIRECTORY));
  read_one(t, "y", CALL(openat(dir, "f", O_RDONLY)));
  const int x = CALL(open(t / "x", O_RDONLY | O_DIRECTORY));
  CALL(dup2(x, dir));
  read_one(t, "x again", CALL(openat(dir, "f", O_RDONLY)), false);
  CALL(close(x));
  CALL(close(dir));
}

PARITY(Path, FchdirMovesRelativeNames) {
  make_tree(t);
  const int dir = CALL(open(t / "d", O_RDONLY | O_DIRECTORY));
  CALL(fchdir(dir));
  read_one(t, "b", CALL(open("b", O_RDONLY)));
  const int file = CALL(open("b", O_RDONLY));
  CALL(fchdir(file));
  EXPECT_EQ(errno, ENOTDIR);
  read_one(t, "b", CALL(open("b", O_RDONLY)));
  CALL(close(file));
  CALL(close(dir));
  CALL(fchdir(dir));
  char where[4096];
  t.path("getcwd", getcwd(where, sizeof where));
}

PARITY(Path, MovedWorkingDirectoryMeansItsNewPlace) {
  t.dir("x");
  t.text("x/f", "first");
  CALL(chdir(t / "x"));
  read_one(t, "before", CALL(open("f", O_RDONLY)));
  CALL(rename(t / "x", t / "z"));
  read_one(t, "after the move", CALL(open("f", O_RDONLY)), false);
  t.dir("x");
  t.text("x/f", "second");
  read_one(t, "old name is another", CALL(open(t / "x/f", O_RDONLY)), false);
  read_one(t, "still the first", CALL(open("f", O_RDONLY)), false);
  CALL(chdir("/"));
}

PARITY(Path, MovedDirectoryFdMeansItsNewPlace) {
  t.dir("x");
  t.text("x/f", "first");
  const int dir = CALL(open(t / "x", O_RDONLY | O_DIRECTORY));
  read_one(t, "before", CALL(openat(dir, "f", O_RDONLY)));
  CALL(rename(t / "x", t / "z"));
  t.dir("x");
  t.text("x/f", "second");
  read_one(t, "still the first", CALL(openat(dir, "f", O_RDONLY)), false);
  CALL(close(dir));
}

PARITY(Path, RemovedWorkingDirectoryHasNoFiles) {
  t.dir("x");
  CALL(chdir(t / "x"));
  CALL(rmdir(t / "x"));
  CALL(open("f", O_RDONLY));
  EXPECT_EQ(errno, ENOENT);
  CALL(close(CALL(open("..", O_RDONLY))));
  CALL(chdir("/"));
}

PARITY(Path, PrefixItselfAndItsNeighbours) {
  const std::string prefix = t.root().substr(0, t.root().rfind('/'));
  const std::string neighbour = prefix + "x";
  t.file("a");
  struct stat st {};
  CALL(stat(prefix.c_str(), &st));
  CALL(open(neighbour.c_str(), O_RDONLY));
  CALL(close(CALL(open(prefix.c_str(), O_RDONLY | O_DIRECTORY))));
  const int above = CALL(open((prefix + "/..").c_str(), O_RDONLY | O_DIRECTORY));
  const std::string down = t.root().substr(prefix.rfind('/') + 1) + "/a";
  read_one(t, "from above", CALL(openat(above, down.c_str(), O_RDONLY)), false);
  CALL(close(above));
}
