// The directory tree with which every run starts: the same names, bytes, links, modes and times
// each time, in a directory under the prefix and one outside it. It is made and removed by plain
// system calls, which a preloaded library does not see.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cube::differ {

inline constexpr std::size_t k_max_file = 256 << 10;  // CUBESHIM_MAX_FILE of the runs
inline constexpr std::int64_t k_age =
    1'600'000'000;  // the modification time of all files of a new tree
inline constexpr std::int64_t k_newest_age =
    k_age + 50'000'000;  // sequences set times below this, now lies above

enum class EntryType {
  file,
  sparse,
  directory,
  link,
  hard_link,
  missing,
  outside_file,
  outside_link,
  outside_hard_link
};

struct Entry {
  std::string_view name;  // below the tree's root, or below the one outside
  EntryType type;
  std::size_t size = 0;
  unsigned mode = 0644;
  std::string_view target;  // of links; "@" is the tree's root, "!" the one outside
  bool is_outside() const { return type >= EntryType::outside_file; }
  bool is_regular() const { return type == EntryType::file || type == EntryType::sparse; }
};
const std::vector<Entry>& entries();
// Some files have 20 to 60 MB (`differ --large`; its workers get this variable).
inline constexpr const char* k_large_variable = "DIFFER_LARGE";
bool has_large_files();
// The trees that lie in packs lie in a bucket instead, which has files and directories alone
// (`differ --bucket`; its workers get this variable).
inline constexpr const char* k_bucket_variable = "DIFFER_BUCKET";
bool is_bucket();

// Both roots are called r and have a directory of their own, to which ".." may lead.
struct Tree {
  std::string root, outside;
  std::string source =
      root;  // where the kernel finds the root's files; not at `root` if that is a pack
  std::string start = root;  // the first working directory: the root, or a directory above it
  bool is_packed() const { return source != root; }
  bool is_entered() const { return start == root; }
  std::string path_of(const Entry& entry) const {
    return (entry.is_outside() ? outside : source) + "/" + std::string(entry.name);
  }
};
// True if a new file gets the inode number of a removed one. This depends on chance, because other
// processes create files there, too.
bool reuses_inodes(const Tree& tree);
// If inodes are reused, those of the tree are held until it is removed.
void make_tree(const Tree& tree);
// The source of a pack, without the outside: a tree in which nothing changes after it is made.
void make_source(const Tree& tree);
void make_outside(const Tree& tree);
void make_directories(const Tree& tree);  // creates directories at the root, although it is a pack
void remove_tree(const Tree& tree);

// Deterministic bytes: lines of text in the one file that is read by lines, noise elsewhere.
std::string content_of(std::string_view name, std::size_t size);
std::string pattern(std::uint64_t number, std::size_t size);

}  // namespace cube::differ
