// Calls that change the file that a name leads to. Construct a NameChange before the call, and
// commit it after the call has succeeded. Thread-safe and async-signal-safe.
#pragma once

#include <optional>

#include "shim/path/path_filter.h"
#include "shim/process/process.h"

namespace cube::shim {

// The right to pass through a directory, noted before a call that may remove it. If the call
// removes it, the records below the directory are dropped, so that the kernel checks the next open.
// Empty if the path is not a directory, or if nothing is cached.
struct Passage {
  bool is_known = false, is_lost = false;
  std::uint32_t mode = 0, user = 0, group = 0;
};
Passage passage_of(int dir, const char* path);
// Like passage_of(), but for a change of an extended attribute. The attribute may be an access
// control list, which overrides the mode, so the right counts as lost.
Passage passage_by_attribute(int dir, const char* path, const char* name);

class NameChange {
 public:
  // The subject of the change.
  enum class Of : std::uint8_t {
    name,          // the name, which afterwards leads elsewhere or nowhere: rename, unlink
    mount_point,   // the directory that the name leads to, also through links
    file,          // the file that the name leads to, also through links: truncate, chmod
    file_or_link,  // like file, but a final link is not followed: lchown
  };
  static constexpr Of file_by(bool follows_links) {
    return follows_links ? Of::file : Of::file_or_link;
  }
  NameChange(int dir, const char* path, Of of = Of::name);
  // Notes that the name now leads to the subject of `from`. If that is a directory, all names below
  // it have moved, too. Call this after a rename and before the commit.
  void leads_to(const NameChange& from) { is_new_tree_ = from.is_tree_; }
  // Whether both names led to the same file before the call.
  bool is_same_file(const NameChange& other) const {
    return before_ && other.before_ && before_->same_file(*other.before_);
  }
  // The subject has another name after the call.
  void moves() { is_moved_ = true; }
  void commit(const Passage& before = {});
  // Drops the listing of the directory of a name that was created or removed.
  static void note_entry(int dir, const char* path);
  // Like note_entry, but for a file that the open of `fd` may have made.
  static void note_entry_of(int fd, int dir, const char* path);

 private:
  static std::optional<cache::FileStat> directory_of(int dir, const char* path);
  static void drop_listing(const cache::FileStat& directory);
  base::Result<cache::FileStat> stat_before(int dir, const char* path, cache::FileCache& cache);
  bool is_on_a_way(const cache::FileStat& stat, int dir, const char* path, cache::FileCache& cache);
  bool take_real_path(int dir, const char* path);
  bool changes_tree(const Passage& before) const;
  void commit_of_unlooked() const;

  Of of_;
  bool was_empty_ = false;  // nothing was cached at the beginning, so nothing was examined
  bool covered_ = false;
  bool by_fd_ = false;  // AT_EMPTY_PATH
  bool is_moved_ = false;
  const char* followed_ = nullptr;            // the path, if the call follows a link at its end
  const char* name_ = nullptr;                // the path, if an entry of a directory changes
  std::optional<cache::FileStat> directory_;  // the directory that has the entry, before the change
  std::string_view prefix_;                   // set if the path is this prefix or lies above it
  int dir_ = AT_FDCWD;
  std::optional<cache::FileStat> before_;
  std::optional<std::uint64_t> unknown_device_;  // no file of it was cached before the call
  bool is_tree_ = false;      // a directory or a link: more than one name changes
  bool is_new_tree_ = false;  // the name has become a directory or a link
  bool knows_tree_ = false;   // path_ is the real path of the tree
  CoveredPath path_;
};

// Call this after the commit of a change. Corrects the cache by the kernel's answer. Returns
// `result`.
long told_of_change(long result, int dir, const char* path, NameChange::Of of);
// Like told_of_change, but for a call that makes a name, and so has no NameChange.
long told_of_new_name(long result, int dir, const char* path);
// Like told_of_new_name, but for a call that may make a file, and not only a name. `before_ns`:
// base::boot_ns before the call; 0 if the call cannot make a file.
long told_of_new_file(long result, int dir, const char* path, std::uint64_t before_ns);
// Like told_of_change, but for the two paths of a failed rename. told_of_source is also for the
// first path of a link.
void told_of_source(long result, int dir, const char* path, bool no_follow);
void told_of_target(long result, int dir, const char* path, unsigned flags);

// Any file may have changed, or any path may lead to another file.
void note_any_change();

// Call this after a change of a file through an fd that is not open for writing (fchmod).
void note_changed(int fd, const Passage& before = {});

}  // namespace cube::shim
