// An arbitrary path, from any directory, against a real tree with links, odd names and a prefix
// that resembles another directory's name. If the filter covers a path with key K, the kernel must
// find the file of K at that path. A path that the filter passes by must not be covered. Every
// spelling of a path without links to a file below a prefix must be covered. Input: a letter for
// the working directory, a letter for the directory fd, a letter for the care, then the path; '@'
// is the tree.
#include <sys/statfs.h>

#include <climits>
#include <vector>

#include "shim/fd/fd_table.h"
#include "shim/lifecycle/lifecycle.h"
#include "shim/path/fd_path.h"
#include "shim/path/path_filter.h"
#include "tests/fuzz/fuzz.h"

namespace cube::shim {
namespace {

namespace sys = base::sys;
namespace fs = std::filesystem;
using path_filter::Care;

struct Tree {
  std::string root;
  std::vector<std::string> directories;
  std::vector<int> fds;
  base::Config config;
};

const Tree* g_tree;

void make_tree(Tree& tree) {
  const std::string& root = tree.root = fs::canonical(fuzz::directory()).string() + "/tree";
  const std::string longest(255, 'n');
  tree.directories = {root,
                      root + "/data",
                      root + "/data/dir",
                      root + "/data/dir/deep",
                      root + "/data/" + longest,
                      root + "/out",
                      root + "/data2",
                      root + "/second",
                      root + "/second/in",
                      root + "/data/...",
                      root + "/data/\xff\xfe"};
  for (const auto& path : tree.directories) fs::create_directories(path);
  for (const auto& path : tree.directories) {
    for (const char* const name : {"a", "..a", "a..", ".h", "\x80 \n", "%n"})
      fuzz::write_file(path + "/" + name, path + name);
    fuzz::write_file(path + "/" + longest.substr(1), "long");
  }
  const std::pair<const char*, const char*> links[] = {
      {"data/to_dir", "dir"},      {"data/to_file", "a"},          {"data/to_out", "../out"},
      {"data/up", ".."},           {"data/loop", "loop"},          {"data/self", "."},
      {"out/into", "../data/dir"}, {"out/up", "../data"},          {"data/dir/deep/top", "../.."},
      {"data/absolute", "/"},      {"data2/in", "../second/in/a"}, {"prefix", "data"},
      {"data/missing", "nowhere"},
  };
  for (const auto& [name, target] : links) fs::create_symlink(target, root + "/" + name);
  for (const auto& path : tree.directories) {
    const auto fd = static_cast<int>(sys::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    g_fds.set_directory(fd);
    tree.fds.push_back(fd);
  }
  tree.fds.push_back(static_cast<int>(sys::open((root + "/out/up").c_str(), O_PATH | O_CLOEXEC)));
  g_fds.set_directory(tree.fds.back());
  tree.fds.push_back(static_cast<int>(sys::open("/", O_PATH | O_CLOEXEC)));
  g_fds.set_directory(tree.fds.back());
  tree.config.prefixes = {root + "/data", root + "/second/in"};
}

// Returns the path that the kernel reports for the fd.
std::string name_of(int fd) {
  char link[64], target[PATH_MAX];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const long n = sys::readlink(link, target, sizeof target);
  return n > 0 && target[0] == '/' ? std::string(target, static_cast<std::size_t>(n))
                                   : std::string();
}

std::string directory_of(int dir) {
  if (dir != AT_FDCWD) return name_of(dir);
  char text[PATH_MAX] = "";
  return sys::failed(sys::getcwd(text, sizeof text)) || text[0] != '/' ? "" : text;
}

std::string folded(const std::string& path) {
  std::string result;
  for (std::size_t at = 0; at < path.size();) {
    const std::size_t end = std::min(path.find('/', at), path.size());
    const std::string part = path.substr(at, end - at);
    at = end + 1;
    if (part.empty() || part == ".") continue;
    if (part == "..") {
      result.resize(result.empty() ? 0 : result.rfind('/'));
    } else {
      result += "/" + part;
    }
  }
  return result;
}

bool is_below_prefix(const std::string& path) {
  for (const auto& prefix : g_tree->config.prefixes) {
    if (path.starts_with(prefix + "/")) return true;
  }
  return false;
}

void check_covered(int dir, const std::string& path, const CoveredPath& covered) {
  const std::string key(covered.key());
  FUZZ_CHECK(key.size() == std::string(covered.c_str()).size(), "a zero in the key");
  FUZZ_CHECK(key == folded(key), "%s", key.c_str());
  FUZZ_CHECK(is_below_prefix(key), "%s", key.c_str());
  for (const int follow : {0, AT_SYMLINK_NOFOLLOW}) {
    struct ::stat by_path {
    }, by_key{};
    const long path_error = sys::fstatat(dir, path.c_str(), &by_path, follow);
    const long key_error = sys::fstatat(AT_FDCWD, key.c_str(), &by_key, follow);
    if (sys::failed(key_error)) continue;
    FUZZ_CHECK(!sys::failed(path_error), "%s: error %ld, but %s is there", path.c_str(),
               -path_error, key.c_str());
    FUZZ_CHECK(by_path.st_dev == by_key.st_dev && by_path.st_ino == by_key.st_ino, "%s is not %s",
               path.c_str(), key.c_str());
  }
}

// Returns the file below a prefix to which this path leads without a link; empty if there is no
// such file.
std::string plain_file(int dir, const std::string& path) {
  const base::UniqueFd fd(
      static_cast<int>(sys::openat(dir, path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC)));
  struct ::stat st {};
  if (!fd || sys::failed(sys::fstat(fd.get(), &st)) || !S_ISREG(st.st_mode)) return {};
  const std::string base = path.starts_with('/') ? "" : directory_of(dir) + "/";
  const std::string found = name_of(fd.get());
  return found == folded(base + path) && is_below_prefix(found) && found.size() < PATH_MAX - 2
             ? found
             : "";
}

void run(fuzz::Input input) {
  const Tree& tree = *g_tree;
  const auto pick = [](unsigned char letter, std::size_t n) {
    return static_cast<std::size_t>(letter - 'a') % n;
  };
  const std::string& cwd = tree.directories[pick(input.byte(), tree.directories.size())];
  const unsigned char dir_letter = input.byte();
  const int dir = dir_letter == '.' ? AT_FDCWD : tree.fds[pick(dir_letter, tree.fds.size())];
  const unsigned char care_letter = input.byte();
  const Care care = care_letter == 't' ? Care::thorough : Care::quick;
  const bool stale = care_letter == 's';
  std::string path;
  for (const char c : input.rest()) {
    if (c == '\0') break;
    if (c == '@') {
      path += tree.root;
    } else {
      path += c;
    }
  }
  // 's': the working directory was changed without the library's knowledge.
  sys::raw(SYS_chdir, sys::arg(tree.directories[stale ? 1 : 0].c_str()));
  path_filter::forget_working_directory();
  if (stale) {
    CoveredPath unused;
    path_filter::covers(AT_FDCWD, "a", unused);
  }
  sys::raw(SYS_chdir, sys::arg(cwd.c_str()));
  if (!stale) path_filter::forget_working_directory();

  auto covered = std::make_unique<CoveredPath>();
  const bool is_covered = path_filter::covers(dir, path.c_str(), *covered, care);
  if (is_covered) check_covered(dir, path, *covered);
  if (path_filter::passes_by(path.c_str())) {
    FUZZ_CHECK(!is_covered && named_fd(path.c_str()) < 0, "%s passes by", path.c_str());
  }
  const std::string plain = plain_file(dir, path);
  if (!plain.empty() && path.size() < PATH_MAX && !stale) {
    FUZZ_CHECK(is_covered && covered->key() == plain, "%s is not covered as %s", path.c_str(),
               plain.c_str());
  }
  std::string_view prefix;
  if (path_filter::is_prefix_or_above(dir, path.c_str(), prefix))
    FUZZ_CHECK(!prefix.empty(), "no prefix");
  path_filter::may_lead_under_prefix(dir, path.c_str());
}

}  // namespace
}  // namespace cube::shim

int LLVMFuzzerInitialize(int*, char***) {
  auto* const tree = new cube::shim::Tree;
  cube::shim::make_tree(*tree);
  cube::shim::g_tree = tree;
  cube::shim::lifecycle::start(tree->config, cube::base::current_process(), false);
  return 0;
}

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  cube::shim::run({data, size});
  return 0;
}
