// Plays a sequence in a tree and logs the results of each operation. The same code runs on plain
// files and under the library. Values that differ from run to run (paths, inode numbers, current
// times) are logged relative to the tree. Thread safety: none. The threads and handlers that an
// operation starts have ended when it returns.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/differential/log.h"
#include "tests/differential/op.h"
#include "tests/differential/tree.h"

namespace cube::differ {

class Actor;

struct Result {
  long value = 0;
  int error = 0;  // the errno after the call; k_errno_kept if unchanged
  bool failed() const { return value == -1; }
  std::string text() const;
  std::string word() const;  // the same text without blanks
};
inline constexpr int k_errno_kept = 4242;

// A buffer for one read or write. It detects stores outside the bytes that were read. Reads of a
// file opened with O_DIRECT depend on the buffer's address, so the address must not be random. A
// buffer of even size begins at a page, and a buffer of odd size begins 16 bytes after a page.
class Buffer {
 public:
  explicit Buffer(std::size_t size)
      : bytes_(k_page + 16 + size + k_guard, k_untouched), size_(size) {
    const std::size_t behind_page = reinterpret_cast<std::uintptr_t>(bytes_.data()) % k_page;
    begin_ = (k_page - behind_page) % k_page + (size % 2 != 0 ? 16 : 0);
  }
  // Makes a buffer for one write.
  explicit Buffer(std::string_view content) : Buffer(content.size()) {
    std::memcpy(data(), content.data(), content.size());
  }
  unsigned char* data() { return bytes_.data() + begin_; }
  // Describes the bytes that were read, and tells whether any other bytes have changed.
  std::string text(long read) const;

 private:
  static constexpr unsigned char k_untouched = 0xa5;
  static constexpr std::size_t k_guard = 64, k_page = 4096;
  std::vector<unsigned char> bytes_;
  std::size_t size_, begin_ = 0;
};

struct Map {
  unsigned char* at = nullptr;
  std::size_t length = 0;
  ino_t inode = 0;
  bool spoiled = false;
};

class Player {
 public:
  Player(Log& log, Actor& peer, Actor& outsider);
  void play(const Sequence& sequence, const Tree& tree);

  // ---- the state that arguments choose from
  int& fd(std::int64_t slot) { return fds_[static_cast<std::size_t>(slot) % std::size(fds_)]; }
  FILE*& stream(std::int64_t slot) {
    return streams_[static_cast<std::size_t>(slot) % std::size(streams_)];
  }
  Map& map(std::int64_t slot) { return maps_[static_cast<std::size_t>(slot) % std::size(maps_)]; }
  DIR*& directory(std::int64_t slot) {
    return directories_[static_cast<std::size_t>(slot) % std::size(directories_)];
  }
  static const Entry& entry(std::int64_t number) {
    return entries()[static_cast<std::size_t>(number) % entries().size()];
  }
  std::string path(std::int64_t entry, std::int64_t spelling) const;
  // Like path(), but for calls that remove or rename a file. It leaves out paths through a link
  // from outside the prefix (SEMANTICS, Limits: "a name removed or renamed through a symbolic link
  // from outside the prefix"), and the hard link from outside (the same row).
  std::string path_inside(std::int64_t entry, std::int64_t spelling) const;
  const Tree& tree() const { return *tree_; }
  // Returns false if a pack answers differently from a read-only mount (SEMANTICS, Packs). A change
  // of a file that the pack does not have fails with EROFS, not with ENOENT or ENOTDIR. An open
  // with O_CREAT of a file that the pack has also fails with EROFS.
  bool may_open(int dir, const std::string& path, std::int64_t flags) const;
  bool may_open(const std::string& path, const char* mode) const;
  // Like may_open, but for a change by path. The path must exist or be outside the pack. With
  // `follow`, the same holds for the target of a link.
  bool may_change(const std::string& path, bool follow = true) const;
  Actor& peer() { return peer_; }
  Actor& outsider() { return outsider_; }

  // ---- the log
  template <typename Call>
  static Result call(Call&& make) {
    errno = k_errno_kept;
    const auto value = (long)make();
    return {value, errno};
  }
  template <typename... Parts>
  void say(fmt::format_string<Parts...> format, Parts&&... parts) {
    log_.line(prefix_ + fmt::format(format, std::forward<Parts>(parts)...));
  }
  std::string show(std::string path) const;  // without the path of the tree
  std::string show(const struct ::stat& st);
  std::string show_inode(mode_t mode, dev_t device, ino_t inode);
  // For a pack, the kernel answers from a copy in memory, which has its own inode, links and blocks
  // (SEMANTICS, Packs). The library's line has "?" for these values.
  bool is_copy(mode_t mode, dev_t device) const;
  bool is_copy_at(int fd) const;
  // The number of an object's blocks follows from its size. A directory of a bucket has no size,
  // and its subdirectories do not count as links. The library's line has "?" for these values, too.
  static bool is_of_bucket(dev_t device);
  bool is_packed_directory(int fd) const;
  // Rewinds the fd if it is a directory of a pack. Positions in a directory depend on the file
  // system, and the error of a read depends on the position.
  void rewind_packed_directory(int fd) const;
  // If a file has become a copy, F_GETFL does not show whether its open refused links.
  long show_flags(long flags) const {
    return tree_->is_packed() ? flags & ~static_cast<long>(O_NOFOLLOW) : flags;
  }
  // On tmpfs, a read of a mapping allocates the pages of a hole, but a mapping of a served file
  // belongs to the cache. So no blocks are shown for a file with holes, and for a file that was
  // ever mapped, because it might have lost its holes since.
  std::string show_blocks(ino_t inode, std::uint64_t blocks, std::uint64_t size) const;
  void note_mapped(ino_t inode) { mapped_.insert(inode); }
  static std::string show(const timespec& time);

  // ---- for operations that contain others
  std::size_t position() const { return position_; }
  void play_part(std::size_t count);  // the next operations, in this process
  void skip(std::size_t count);
  void enter_child();
  bool is_child() const { return depth_ != 0; }
  // Closes and unmaps everything that the sequence has open.
  void close_all();
  // Notes that mappings of this file can differ from the file now.
  void content_changed(const char* path, bool follow = true);
  void content_changed(int fd);

 private:
  void spoil(const struct ::stat& st);
  dev_t device_of(dev_t device) const;
  ino_t inode_of_object(const Entry& entry) const;
  void play_one(const Op& op);
  std::string path_spelled(const Entry& entry, std::int64_t kind) const;
  void leave_orphans();
  void reset();

  Log& log_;
  Actor& peer_;
  Actor& outsider_;
  const Sequence* sequence_ = nullptr;
  const Tree* tree_ = nullptr;
  std::string here_;  // path from the first working directory to the root, with a slash
  std::size_t position_ = 0, end_ = 0;
  int depth_ = 0;
  std::string prefix_;
  int fds_[8];
  FILE* streams_[3]{};
  Map maps_[3];
  DIR* directories_[2]{};
  std::map<std::pair<dev_t, ino_t>, std::string> inodes_;
  bool reuses_inodes_ = false;  // whether the tree's file system does so
  dev_t outside_ = 0;           // the device of the other directory
  std::set<ino_t> mapped_;
};

// Returns the name of the error, as in "-1 ENOENT".
std::string error_name(int error);
std::uint64_t hash_of(const void* data, std::size_t n);

}  // namespace cube::differ

// An operation: DIFFER_PLAY(read) { ... p ... a[0] ... }
#define DIFFER_PLAY(name) \
  void op_##name([[maybe_unused]] Player& p, [[maybe_unused]] const Arguments& a)
