#include "tests/differential/tree.h"

#include <dirent.h>
#include <linux/magic.h>
#include <sys/vfs.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>

#include "cache/base/sys.h"
#include "cache/base/unique_fd.h"

namespace cube::differ {
namespace {

namespace sys = base::sys;

constexpr std::int64_t k_hole = 32 << 10;

void must(long result, const char* what, const std::string& path) {
  if (!sys::failed(result)) return;
  std::fprintf(stderr, "differ: cannot %s %s: %s\n", what, path.c_str(),
               strerror(static_cast<int>(-result)));
  std::abort();
}

void set_age(const std::string& path) {
  // A store keeps only whole seconds, and no times of directories (SEMANTICS, Buckets).
  const timespec times[2] = {{k_age, 0}, {k_age, is_bucket() ? 0 : 123'456'789}};
  must(sys::raw(SYS_utimensat, AT_FDCWD, sys::arg(path.c_str()), sys::arg(times),
                AT_SYMLINK_NOFOLLOW),
       "date", path);
}

const std::string& cached_content(const Entry& entry) {
  static std::map<std::string_view, std::string> contents;
  auto [found, is_new] = contents.try_emplace(entry.name);
  if (is_new) found->second = content_of(entry.name, entry.size);
  return found->second;
}

void make_file(const std::string& path, const Entry& entry) {
  const long fd = sys::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  must(fd, "make", path);
  if (entry.type == EntryType::sparse) {
    must(sys::pwrite(static_cast<int>(fd), cached_content(entry).data(), 4096, k_hole), "write",
         path);
    must(sys::ftruncate(static_cast<int>(fd), static_cast<std::int64_t>(entry.size)), "size", path);
  } else if (const std::string& content = cached_content(entry); !content.empty()) {
    must(sys::write(static_cast<int>(fd), content.data(), content.size()), "write", path);
  }
  must(sys::raw(SYS_fchmod, fd, is_bucket() ? 0444 : entry.mode), "chmod", path);
  sys::close(static_cast<int>(fd));
}

std::string parent_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

std::string expand(const Tree& tree, std::string_view target) {
  if (target.starts_with('@')) return tree.root + std::string(target.substr(1));
  // A link that leads out of a pack is dangling (SEMANTICS, Packs).
  if (target.starts_with('!') && tree.is_packed()) return tree.start + "/none";
  if (target.starts_with('!')) return tree.outside + std::string(target.substr(1));
  return std::string(target);
}

void make_directory(const std::string& path) {
  must(sys::raw(SYS_mkdirat, AT_FDCWD, sys::arg(path.c_str()), 0755), "mkdir", path);
}

void make_entry(const Tree& tree, const Entry& entry) {
  const std::string path = tree.path_of(entry);
  switch (entry.type) {
    case EntryType::file:
    case EntryType::sparse:
    case EntryType::outside_file: make_file(path, entry); break;
    case EntryType::directory: make_directory(path); break;
    case EntryType::link:
    case EntryType::outside_link:
      must(sys::raw(SYS_symlinkat, sys::arg(expand(tree, entry.target).c_str()), AT_FDCWD,
                    sys::arg(path.c_str())),
           "link", path);
      break;
    case EntryType::hard_link:
    case EntryType::outside_hard_link: {
      const std::string of = (entry.target.starts_with('@') ? tree.source : tree.outside) +
                             std::string(entry.target.substr(1));
      must(
          sys::raw(SYS_linkat, AT_FDCWD, sys::arg(of.c_str()), AT_FDCWD, sys::arg(path.c_str()), 0),
          "hard link", path);
      break;
    }
    case EntryType::missing: break;
  }
}

// Gives a directory the mode and the times that it has in a bucket.
void make_listed(const std::string& path) {
  constexpr timespec k_none[2] = {};
  must(sys::raw(SYS_fchmodat, AT_FDCWD, sys::arg(path.c_str()), 0555), "chmod", path);
  must(sys::raw(SYS_utimensat, AT_FDCWD, sys::arg(path.c_str()), sys::arg(k_none), 0), "date",
       path);
}

template <typename Fits>
void make_entries(const Tree& tree, Fits fits) {
  for (const Entry& entry : entries()) {
    if (fits(entry)) make_entry(tree, entry);
  }
  for (const Entry& entry : entries()) {
    if (fits(entry) && entry.type != EntryType::missing) set_age(tree.path_of(entry));
  }
}

void remove_below(int dir) {
  alignas(8) char names[16384];
  for (long n = 0; (n = sys::raw(SYS_getdents64, dir, sys::arg(names), sizeof names)) > 0;) {
    for (long at = 0; at < n;) {
      const auto* const entry = reinterpret_cast<const struct ::dirent64*>(names + at);
      at += entry->d_reclen;
      const std::string_view name = entry->d_name;
      if (name == "." || name == "..") continue;
      if (entry->d_type != DT_DIR) {
        sys::raw(SYS_unlinkat, dir, sys::arg(entry->d_name), 0);
        continue;
      }
      sys::raw(SYS_fchmodat, dir, sys::arg(entry->d_name), 0755);
      const long below = sys::openat(dir, entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
      if (sys::failed(below)) continue;
      remove_below(static_cast<int>(below));
      sys::close(static_cast<int>(below));
      sys::raw(SYS_unlinkat, dir, sys::arg(entry->d_name), AT_REMOVEDIR);
    }
  }
}

void remove_directory(const std::string& path) {
  const long dir = sys::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (sys::failed(dir)) return;
  remove_below(static_cast<int>(dir));
  sys::close(static_cast<int>(dir));
  sys::raw(SYS_unlinkat, AT_FDCWD, sys::arg(path.c_str()), AT_REMOVEDIR);
}

}  // namespace

namespace {

constexpr std::pair<std::string_view, std::size_t> k_large_sizes[] = {{"p4097", (20 << 20) + 1},
                                                                      {"q8192", 24 << 20},
                                                                      {"b100k", 40'000'003},
                                                                      {"x300k", 60 << 20},
                                                                      {"s64k", (33 << 20) + 5}};

std::vector<Entry> with_sizes(std::vector<Entry> all) {
  if (!has_large_files()) return all;
  for (Entry& entry : all) {
    for (const auto& [name, size] : k_large_sizes) {
      if (entry.name == name) entry.size = size;
    }
  }
  return all;
}

}  // namespace

bool has_large_files() { return getenv(k_large_variable) != nullptr; }
bool is_bucket() { return getenv(k_bucket_variable) != nullptr; }

const std::vector<Entry>& entries() {
  using enum EntryType;
  static const std::vector<Entry> all = with_sizes({
      {.name = "e0", .type = file},
      {.name = "e1", .type = file, .size = 1},
      {.name = "c63", .type = file, .size = 63},
      {.name = "c64", .type = file, .size = 64},
      {.name = "c65", .type = file, .size = 65},
      {.name = "m100", .type = file, .size = 100},
      {.name = "p4095", .type = file, .size = 4095},
      {.name = "p4096", .type = file, .size = 4096},
      {.name = "p4097", .type = file, .size = 4097},
      {.name = "q8192", .type = file, .size = 8192},
      {.name = "lines.txt", .type = file, .size = 9000},
      {.name = "b100k", .type = file, .size = 102400},
      {.name = "x300k", .type = file, .size = 300'000},
      {.name = "s64k", .type = sparse, .size = 65536},
      {.name = "r444", .type = file, .size = 2000, .mode = 0444},
      {.name = "w0", .type = file, .size = 500, .mode = 0},
      {.name = "d", .type = directory},
      {.name = "d/e", .type = directory},
      {.name = "z", .type = directory},
      {.name = "d/g5000", .type = file, .size = 5000},
      {.name = "d/g200", .type = file, .size = 200},
      {.name = "d/e/h30000", .type = file, .size = 30000},
      {.name = "lf", .type = link, .target = "p4096"},
      {.name = "ld", .type = link, .target = "d"},
      {.name = "lm", .type = link, .target = "nx"},
      {.name = "lo", .type = link, .target = "!/o0"},
      {.name = "la", .type = link, .target = "@/q8192"},
      {.name = "ll", .type = link, .target = "ll"},
      {.name = "kf", .type = hard_link, .target = "@/p4097"},
      {.name = "d/kb", .type = hard_link, .target = "@/b100k"},
      {.name = "nx", .type = missing},
      {.name = "ny", .type = missing},
      {.name = "d/nx", .type = missing},
      {.name = "z/nx", .type = missing},
      {.name = "o0", .type = outside_file, .size = 3000},
      {.name = "so", .type = outside_link, .target = "@/m100"},
      {.name = "sd", .type = outside_link, .target = "@"},
      {.name = "ho", .type = outside_hard_link, .target = "@/c65"},
  });
  return all;
}

namespace {

// Fds that hold inodes, so that the inodes' numbers are not reused.
std::map<std::string, std::vector<base::UniqueFd>> g_held;

void hold_inodes(const Tree& tree) {
  if (!reuses_inodes(tree)) return;
  for (const Entry& entry : entries()) {
    if (entry.type == EntryType::missing) continue;
    if (tree.is_packed() && entry.type != EntryType::outside_file) continue;
    const long fd = sys::open(tree.path_of(entry).c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC);
    must(fd, "open", tree.path_of(entry));
    g_held[tree.outside].emplace_back(static_cast<int>(fd));
  }
}

}  // namespace

bool reuses_inodes(const Tree& tree) {
  struct ::statfs fs {};
  must(sys::raw(SYS_statfs, sys::arg(tree.source.c_str()), sys::arg(&fs)), "statfs", tree.source);
  return fs.f_type != TMPFS_MAGIC;
}

void make_tree(const Tree& tree) {
  for (const std::string& directory :
       {parent_of(tree.root), tree.root, parent_of(tree.outside), tree.outside})
    make_directory(directory);
  make_entries(tree, [](const Entry&) { return true; });
  hold_inodes(tree);
}

void make_source(const Tree& tree) {
  make_directory(parent_of(tree.source));
  make_directory(tree.source);
  make_entries(tree, [](const Entry& entry) {
    const bool is_object = entry.is_regular() || entry.type == EntryType::directory;
    return !entry.is_outside() && (is_object || !is_bucket());
  });
  if (!is_bucket()) return;
  make_listed(tree.source);
  for (const Entry& entry : entries()) {
    if (entry.type == EntryType::directory) make_listed(tree.path_of(entry));
  }
}

// No link outside leads into the pack, because the kernel does not know the pack. No file outside
// is a hard link to a file in the pack's source.
void make_outside(const Tree& tree) {
  make_directory(parent_of(tree.outside));
  make_directory(tree.outside);
  make_entries(tree, [](const Entry& entry) { return entry.type == EntryType::outside_file; });
  hold_inodes(tree);
}

void make_directories(const Tree& tree) {
  make_directory(parent_of(tree.root));
  make_directory(tree.root);
  for (const Entry& entry : entries()) {
    if (entry.type == EntryType::directory)
      make_directory(tree.root + "/" + std::string(entry.name));
  }
}

void remove_tree(const Tree& tree) {
  g_held.erase(tree.outside);
  if (!tree.is_packed()) remove_directory(parent_of(tree.root));
  remove_directory(parent_of(tree.outside));
}

std::string pattern(std::uint64_t number, std::size_t size) {
  std::string bytes(size, '\0');
  std::uint64_t state = number * 0x9e3779b97f4a7c15ULL + 1;
  for (std::size_t at = 0; at < size; at += 8) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    std::memcpy(bytes.data() + at, &state, std::min<std::size_t>(8, size - at));
  }
  return bytes;
}

std::string content_of(std::string_view name, std::size_t size) {
  if (!name.ends_with(".txt")) {
    std::uint64_t number = 7;
    for (const char c : name) number = number * 31 + static_cast<unsigned char>(c);
    return pattern(number, size);
  }
  std::string text;
  for (unsigned line = 0; text.size() < size; ++line)
    text += std::to_string(line) + std::string(line * 7 % 90, 'x') + "\n";
  text.resize(size);
  return text;
}

}  // namespace cube::differ
