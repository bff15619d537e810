// The directory tree with which every run starts. It always has the same names, bytes, links, modes
// and times, in a directory under the prefix and a directory outside. It is made and removed by
// plain system calls, which a preloaded library does not see.
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
    k_age + 50'000'000;  // sequences set times below this; the current time is above

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
  std::string_view name;  // relative to the root in the tree or the root outside
  EntryType type;
  std::size_t size = 0;
  unsigned mode = 0644;
  std::string_view target;  // of links; "@" is the tree's root, "!" the root outside
  bool is_outside() const { return type >= EntryType::outside_file; }
  bool is_regular() const { return type == EntryType::file || type == EntryType::sparse; }
};
const std::vector<Entry>& entries();
// Some files have 20 to 60 MB. Set by `differ --large` for its workers.
inline constexpr const char* k_large_variable = "DIFFER_LARGE";
bool has_large_files();
// The packed trees are in a bucket, which has only files and directories. Set by `differ --bucket`
// for its workers.
inline constexpr const char* k_bucket_variable = "DIFFER_BUCKET";
bool is_bucket();

// Both roots are named r. Each has its own parent directory, to which ".." can lead.
struct Tree {
  std::string root, outside;
  std::string source =
      root;  // where the kernel finds the root's files; differs from `root` for a pack
  std::string start = root;  // the first working directory: the root, or a directory above it
  bool is_packed() const { return source != root; }
  bool is_entered() const { return start == root; }
  std::string path_of(const Entry& entry) const {
    return (entry.is_outside() ? outside : source) + "/" + std::string(entry.name);
  }
};
// Returns true if a new file gets the inode number of a removed file. The result depends on chance,
// because other processes also create files there.
bool reuses_inodes(const Tree& tree);
// Makes the tree. If inodes are reused, the tree's inodes are held until the tree is removed.
void make_tree(const Tree& tree);
// Makes the source of a pack, without the directory outside. Nothing in it changes afterwards.
void make_source(const Tree& tree);
void make_outside(const Tree& tree);
void make_directories(const Tree& tree);  // creates directories at the root of a pack
void remove_tree(const Tree& tree);

// Returns deterministic bytes: lines of text for the file that is read by lines, noise for all
// others.
std::string content_of(std::string_view name, std::size_t size);
std::string pattern(std::uint64_t number, std::size_t size);

}  // namespace cube::differ
