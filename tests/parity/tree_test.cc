// Walks over the covered tree by libc's own functions: fts, ftw, nftw, glob, scandir, directory
// streams.
#include <dirent.h>
#include <fts.h>
#include <ftw.h>
#include <glob.h>

#include <algorithm>

#include "tests/support/parity_case.h"

using cube::parity::function;

namespace {

void make_tree(cube::parity::Case& t) {
  for (const char* name : {"d", "d/e", "d/empty"}) t.dir(name);
  for (const char* name : {"a.jpg", "b.jpg", "c.png", "d/x.jpg", "d/e/y.jpg"}) t.file(name, 50);
  t.link("l", "a.jpg");
  t.link("to_d", "d");
  t.link("nowhere", "none");
}
// The file system decides the order of a walk, but not which entries are visited.
std::vector<std::string>* g_visited = nullptr;
int visit(const char* path, const struct stat* st, int type) {
  g_visited->push_back(std::string(path) + " type " + std::to_string(type) + " size " +
                       (S_ISREG(st->st_mode) ? std::to_string(st->st_size) : "-"));
  return 0;
}
int visit_more(const char* path, const struct stat* st, int type, FTW* where) {
  return visit((std::string(path) + " base " +
                std::to_string(where->base - static_cast<int>(std::strlen(path))) + " level " +
                std::to_string(where->level))
                   .c_str(),
               st, type);
}
void show(cube::parity::Case& t, const char* label, std::vector<std::string>& lines) {
  std::sort(lines.begin(), lines.end());
  for (const std::string& line : lines) t.path(label, line.c_str());
  lines.clear();
}

}  // namespace

PARITY(Tree, Walks) {
  make_tree(t);
  std::vector<std::string> visited;
  g_visited = &visited;
  CALL(ftw(t.root().c_str(), visit, 10));
  show(t, "ftw", visited);
  CALL(ftw64(t.root().c_str(), reinterpret_cast<__ftw64_func_t>(visit), 1));
  show(t, "ftw64", visited);
  for (const int flags : {0, int{FTW_PHYS}, int{FTW_DEPTH}, FTW_PHYS | FTW_MOUNT | FTW_CHDIR}) {
    CALL(nftw(t.root().c_str(), visit_more, 5, flags));
    show(t, "nftw", visited);
    CALL(nftw64(t.root().c_str(), reinterpret_cast<__nftw64_func_t>(visit_more), 5, flags));
    show(t, "nftw64", visited);
  }
  CALL(nftw(t / "none", visit_more, 5, 0));
  CALL(nftw(t / "a.jpg", visit_more, 5, 0));
  show(t, "of a file", visited);
  const int fd = CALL(open(t / "a.jpg", O_RDONLY));
  t.expect_served(fd);
}

PARITY(Tree, FtsWalks) {
  make_tree(t);
  char* roots[] = {const_cast<char*>(t.root().c_str()), nullptr};
  std::vector<std::string> visited;
  for (const int options : {FTS_PHYSICAL, FTS_LOGICAL, FTS_PHYSICAL | FTS_NOCHDIR}) {
    FTS* const walk = STDIO(nullptr, fts_open(roots, options, nullptr));
    while (const FTSENT* entry = fts_read(walk)) {
      const bool is_file = entry->fts_info == FTS_F;
      visited.push_back(std::string(entry->fts_path) + " info " + std::to_string(entry->fts_info) +
                        " level " + std::to_string(entry->fts_level) + " size " +
                        (is_file ? std::to_string(entry->fts_statp->st_size) : "-"));
      if (is_file) {
        // Reads a file in the middle of the walk, like many tools.
        const int fd = open(entry->fts_accpath, O_RDONLY);
        char byte = 0;
        visited.push_back(std::string(entry->fts_path) + " read " +
                          std::to_string(read(fd, &byte, 1)) + std::to_string(byte));
        close(fd);
      }
    }
    CALL(fts_close(walk));
    show(t, "fts", visited);
  }
  auto* const open64 = function<void*(char* const*, int, void*)>("fts64_open");
  auto* const close64 = function<int(void*)>("fts64_close");
  void* const walk = STDIO(nullptr, open64(roots, FTS_PHYSICAL, nullptr));
  CALL(close64(walk));
}

PARITY(Tree, Globs) {
  make_tree(t);
  for (const char* pattern :
       {"*.jpg", "*/*.jpg", "[ab].*", "d/**", "none*", "nowhere", "l", "{a,c}.*", "to_d/*"}) {
    glob_t found{};
    t.line(pattern);
    CALL(glob(t / pattern, GLOB_BRACE, nullptr, &found));
    for (std::size_t i = 0; i < found.gl_pathc; ++i) t.path("glob", found.gl_pathv[i]);
    globfree(&found);
    glob64_t found64{};
    CALL(glob64(t / pattern, GLOB_MARK | GLOB_BRACE, nullptr, &found64));
    for (std::size_t i = 0; i < found64.gl_pathc; ++i) t.path("glob64", found64.gl_pathv[i]);
    globfree64(&found64);
  }
}

PARITY(Tree, StreamsGoBackAndForth) {
  make_tree(t);
  DIR* const stream = STDIO(nullptr, opendir(t.root().c_str()));
  std::vector<std::string> names;
  std::vector<long> places;
  while (true) {
    places.push_back(telldir(stream));
    const dirent* const entry = readdir(stream);
    if (entry == nullptr) break;
    names.emplace_back(entry->d_name);
  }
  t.line(std::to_string(names.size()) + " names");
  for (std::size_t i = 0; i < names.size(); ++i) {
    seekdir(stream, places[i]);
    const dirent* const entry = readdir(stream);
    if (entry == nullptr || names[i] != entry->d_name)
      t.line("another name at place " + std::to_string(i));
  }
  rewinddir(stream);
  const dirent64* const first = readdir64(stream);
  t.line(first != nullptr && names[0] == first->d_name ? "the first again" : "another first");
  struct dirent room {
  }, *result = nullptr;
  CALL(readdir_r(stream, &room, &result));
  t.line(result != nullptr && names[1] == room.d_name ? "the second" : "another second");
  struct dirent64 room64 {
  }, *result64 = nullptr;
  CALL(readdir64_r(stream, &room64, &result64));
  t.line(result64 != nullptr && names[2] == room64.d_name ? "the third" : "another third");
  CALL(fstatat(dirfd(stream), "a.jpg", &*std::make_unique<struct stat>(), 0));
  t.expect_served(CALL(openat(dirfd(stream), "a.jpg", O_RDONLY)));
  CALL(closedir(stream));
}

PARITY(Tree, Scans) {
  make_tree(t);
  const int dir = CALL(open(t.root().c_str(), O_RDONLY | O_DIRECTORY));
  const auto pick = [](const dirent* entry) { return static_cast<int>(entry->d_name[0] != '.'); };
  const auto show_list = [&](dirent** list, int n) {
    for (int i = 0; i < n; ++i) {
      t.line(std::string(list[i]->d_name) + " " + std::to_string(list[i]->d_type));
      free(list[i]);
    }
    if (n >= 0) free(list);
  };
  dirent** list = nullptr;
  int n = CALL(scandir(t.root().c_str(), &list, pick, alphasort));
  show_list(list, n);
  n = CALL(scandirat(dir, "d", &list, pick, alphasort));
  show_list(list, n);
  using Scan64 =
      int(const char*, dirent***, int (*)(const dirent*), int (*)(const dirent**, const dirent**));
  using ScanAt64 = int(int, const char*, dirent***, int (*)(const dirent*),
                       int (*)(const dirent**, const dirent**));
  errno = cube::parity::k_errno_kept;
  n = t.note("scandir64", function<Scan64>("scandir64")(t.root().c_str(), &list, pick, alphasort));
  show_list(list, n);
  errno = cube::parity::k_errno_kept;
  n = t.note("scandirat64", function<ScanAt64>("scandirat64")(dir, "d/e", &list, pick, alphasort));
  show_list(list, n);
  const int served = CALL(open(t / "a.jpg", O_RDONLY));
  CALL(scandirat(served, "d", &list, nullptr, nullptr));
  EXPECT_EQ(errno, ENOTDIR);
  CALL(scandirat(served, t / "d/empty", &list, pick, nullptr));
  CALL(scandirat(-1, "d", &list, nullptr, nullptr));
  CALL(scandir(t / "none", &list, nullptr, nullptr));
}

PARITY(Tree, StreamsOverFds) {
  make_tree(t);
  const int dir = CALL(open(t / "d", O_RDONLY));
  DIR* const stream = STDIO(nullptr, fdopendir(dir));
  CALL(dirfd(stream));
  std::vector<std::string> names;
  while (const dirent* entry = readdir(stream)) names.emplace_back(entry->d_name);
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) t.line(name);
  t.expect_served(CALL(openat(dir, "x.jpg", O_RDONLY)));
  CALL(closedir(stream));
  CALL(close(dir));
  EXPECT_EQ(errno, EBADF);
  CALL(openat(dir, "x.jpg", O_RDONLY));
  CALL(fdopendir(CALL(open(t / "a.jpg", O_RDONLY))));
  CALL(fdopendir(CALL(open(t / "d", O_PATH))));
  CALL(fdopendir(-1));
  CALL(opendir(t / "nowhere"));
  CALL(opendir(""));
  STDIO(nullptr, opendir(t / "to_d"));
}
