#include "tests/differential/player.h"

#include <fcntl.h>
#include <stdio_ext.h>
#include <sys/resource.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>

#include "cache/base/hash.h"
#include "cache/base/sys.h"
#include "cache/pack/pack_mount.h"
#include "tests/differential/actor.h"

namespace cube::differ {

namespace sys = base::sys;

std::string error_name(int error) {
  const char* const name = strerrorname_np(error);
  return name != nullptr ? name : std::to_string(error);
}

std::uint64_t hash_of(const void* data, std::size_t n) { return base::hash_bytes(data, n); }

namespace {

bool is_of_pack(dev_t device) { return (gnu_dev_minor(device) & cache::k_pack_device) != 0; }

}  // namespace

std::string Result::text() const {
  std::string text = std::to_string(value);
  if (failed()) return text + " " + (error == k_errno_kept ? "errno not set" : error_name(error));
  return error == k_errno_kept ? text : text + " and errno is " + error_name(error);
}

std::string Result::word() const {
  std::string text = this->text();
  std::ranges::replace(text, ' ', '_');
  return text;
}

std::string Buffer::text(long read) const {
  const std::size_t n = read > 0 ? std::min(static_cast<std::size_t>(read), size_) : 0;
  for (std::size_t at = 0; at < bytes_.size(); ++at) {
    if (bytes_[at] == k_untouched || (at >= begin_ && at < begin_ + n)) continue;
    // A direct read of btrfs writes zeros to the rest of the buffer.
    const bool is_within = at >= begin_ && at < begin_ + size_;
    if (bytes_[at] != 0 || !is_within)
      return fmt::format("touched at {}", static_cast<long>(at) - static_cast<long>(begin_));
  }
  return n == 0 ? "" : fmt::format("{:016x}", hash_of(bytes_.data() + begin_, n));
}

Player::Player(Log& log, Actor& peer, Actor& outsider)
    : log_(log), peer_(peer), outsider_(outsider) {
  for (int& fd : fds_) fd = -1;
}

void Player::play(const Sequence& sequence, const Tree& tree) {
  sequence_ = &sequence;
  tree_ = &tree;
  depth_ = 0;
  prefix_.clear();
  inodes_.clear();
  reuses_inodes_ = reuses_inodes(tree);
  mapped_.clear();
  struct ::stat outside {};
  if (!sys::failed(sys::fstatat(AT_FDCWD, tree.outside.c_str(), &outside, 0)))
    outside_ = outside.st_dev;
  for (const Entry& entry : entries()) {
    struct ::stat st {};
    if (sys::failed(sys::fstatat(AT_FDCWD, tree.path_of(entry).c_str(), &st, AT_SYMLINK_NOFOLLOW)))
      continue;
    const bool is_object = !entry.is_outside() && getenv("CUBESHIM_BUCKETS") != nullptr;
    inodes_.try_emplace({device_of(st.st_dev), is_object ? inode_of_object(entry) : st.st_ino},
                        entry.name);
  }
  here_ = tree.is_entered() ? "" : tree.root.substr(tree.start.size() + 1) + "/";
  if (chdir(tree.start.c_str()) != 0) say("cannot enter the tree: {}", error_name(errno));
  position_ = 0;
  end_ = sequence.size();
  play_part(end_);
  // Logs all fds that are still open, even those that the sequence has not requested.
  const ::itimerval none{};
  signal(SIGALRM, SIG_IGN);
  setitimer(ITIMER_REAL, &none, nullptr);
  for (int fd = 0; fd < 110; ++fd) {
    if (fd == STDOUT_FILENO || fd == STDERR_FILENO) continue;  // the harness's
    const int flags = fcntl(fd, F_GETFD);
    if (flags < 0) continue;
    const long mode = show_flags(fcntl(fd, F_GETFL));
    // A position in a directory is only a cookie of the file system.
    const off_t at =
        (mode & O_DIRECTORY) != 0 || is_packed_directory(fd) ? 0 : lseek(fd, 0, SEEK_CUR);
    say("left {}: {} 0{:o} at {}", fd, flags, mode, at);
  }
  close_all();
  reset();
}

void Player::play_one(const Op& op) {
  op_kinds()[op.kind].play(*this, op.a);
  leave_orphans();
}

// A stream whose fd was closed without its knowledge is not used again (SEMANTICS, Limits: such a
// stream). It must not undo its read-ahead either: since glibc 2.43, fflush(NULL) in a later
// sequence would move the offset of the next file with that fd.
void Player::leave_orphans() {
  for (FILE*& stream : streams_) {
    if (stream == nullptr || fcntl(fileno(stream), F_GETFD) >= 0) continue;
    __fpurge(stream);
    stream = nullptr;
  }
  for (DIR*& directory : directories_) {
    if (directory != nullptr && fcntl(dirfd(directory), F_GETFD) < 0) directory = nullptr;
  }
}

void Player::play_part(std::size_t count) {
  end_ = std::min(position_ + count, end_);
  while (position_ < end_) play_one((*sequence_)[position_++]);
}
void Player::skip(std::size_t count) { position_ = std::min(position_ + count, end_); }
void Player::enter_child() {
  ++depth_;
  prefix_ += "| ";
}

void Player::close_all() {
  for (Map& map : maps_) {
    if (map.at != nullptr) munmap(map.at, map.length);
    map = Map();
  }
  for (DIR*& directory : directories_) {
    if (directory != nullptr) closedir(directory);
    directory = nullptr;
  }
  for (FILE*& stream : streams_) {
    if (stream != nullptr) fclose(stream);
    stream = nullptr;
  }
  close_range(3, k_first_own_fd - 1, 0);
  for (int& fd : fds_) fd = -1;
  peer_.ask({.kind = Change::release});
}

void Player::reset() {
  const ::itimerval none{};
  signal(SIGALRM, SIG_IGN);
  setitimer(ITIMER_REAL, &none, nullptr);  // a handler restarts the timer
  for (const int number : {SIGALRM, SIGUSR1, SIGUSR2, SIGBUS, SIGSEGV}) signal(number, SIG_DFL);
  struct ::rlimit limit {};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = k_fd_limit;
  setrlimit(RLIMIT_NOFILE, &limit);
  if (chdir("/") != 0) std::abort();
  const int null = open("/dev/null", O_RDONLY);
  dup2(null, STDIN_FILENO);
  if (null > STDERR_FILENO) close(null);
}

std::string Player::path(std::int64_t number, std::int64_t spelling) const {
  const Entry& entry = Player::entry(number);
  const std::int64_t kind = spelling % 14;
  if (!tree_->is_packed()) return path_spelled(entry, kind);
  // For the kernel, neither a link from outside nor a link in /proc leads into a pack.
  const bool leads_in =
      entry.type == EntryType::outside_link || entry.type == EntryType::outside_hard_link;
  return path_spelled(leads_in ? Player::entry(0) : entry, kind == 10 || kind == 11 ? 0 : kind);
}

std::string Player::path_spelled(const Entry& entry, std::int64_t kind) const {
  const std::string name(entry.name);
  if (entry.is_outside()) return tree_->path_of(entry);
  const std::string absolute = tree_->root + "/" + name;
  switch (kind) {
    case 1: return here_ + name;
    case 2: return "./" + here_ + name;
    case 3: return tree_->root + "/d/../" + name;
    case 4: return here_ + "d/../" + name;
    case 5: return tree_->root + "//./" + name;
    case 6: return absolute + "/";
    case 7: return absolute + "/.";
    case 8: return tree_->root + "/ld/../" + name;
    case 9: return here_ + "../" + name;
    case 10: return tree_->outside + "/sd/" + name;
    case 11: return "/proc/self/cwd/" + name;
    case 12:
      return name.starts_with("d/") ? tree_->root + "/ld" + name.substr(1)
                                    : here_ + "d/e/../../" + name;
    case 13: return here_ + "../r/" + name;
    default: return absolute;
  }
}

std::string Player::path_inside(std::int64_t number, std::int64_t spelling) const {
  const Entry& entry = Player::entry(number);
  const std::int64_t kind = spelling % 14;
  // The kernel reports these errors before others: that a mount is read-only and is not the mount
  // of the files outside, that a name cannot be made or removed (because it ends in a slash or a
  // dot), or that a directory is missing.
  if (tree_->is_packed()) {
    const std::string chosen =
        path(entry.is_outside() ? 0 : number, kind == 6 || kind == 7 || kind == 9 ? 0 : kind);
    const std::size_t slash = chosen.rfind('/');
    const bool has_parent =
        may_change(slash == std::string::npos ? "." : chosen.substr(0, slash + 1));
    return has_parent ? chosen : path(entry.is_outside() ? 0 : number, 0);
  }
  return path(entry.type == EntryType::outside_hard_link ? 0 : number,
              kind == 10 || kind == 11 ? 0 : kind);
}

bool Player::may_open(int dir, const std::string& path, std::int64_t flags) const {
  if (!tree_->is_packed()) return true;
  // With these flags, the kernel itself answers ENOENT.
  if ((flags & (O_DIRECT | O_NOATIME)) != 0) return false;
  const bool makes = (flags & O_CREAT) != 0,
             changes = (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC) != 0;
  if (!makes && !changes) return true;
  struct ::stat st {};
  errno = 0;
  const bool is_there = fstatat(dir, path.c_str(), &st, 0) == 0;
  if (is_there && path.starts_with(tree_->outside)) return true;
  if ((flags & O_TMPFILE) == O_TMPFILE) return is_there && S_ISDIR(st.st_mode);
  if ((flags & (O_DIRECTORY | O_PATH)) != 0) return false;
  if (makes && (path.ends_with('/') || path.ends_with("/.") || path.ends_with("/lo"))) return false;
  // The name exists, or is a dangling link.
  if ((flags & O_EXCL) != 0 && makes && fstatat(dir, path.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0)
    return true;
  if (is_there) return changes || S_ISDIR(st.st_mode);
  if (!makes || errno != ENOENT) return false;
  // If a directory is missing, the kernel reports that error.
  const std::size_t slash = path.rfind('/');
  return fstatat(dir, slash == std::string::npos ? "." : path.substr(0, slash + 1).c_str(), &st,
                 0) == 0;
}

bool Player::may_open(const std::string& path, const char* mode) const {
  const bool makes = *mode != 'r', changes = makes || mode[1] == '+';
  return may_open(AT_FDCWD, path,
                  (makes ? O_CREAT : 0) | (changes ? O_RDWR : 0) | (*mode == 'w' ? O_TRUNC : 0));
}

bool Player::may_change(const std::string& path, bool follow) const {
  if (!tree_->is_packed()) return true;
  struct ::stat st {};
  return fstatat(AT_FDCWD, path.c_str(), &st, follow ? 0 : AT_SYMLINK_NOFOLLOW) == 0;
}

std::string Player::show(std::string path) const {
  const auto replace = [&](const std::string& what, const char* by) {
    for (std::size_t at = path.find(what); at != std::string::npos; at = path.find(what, at))
      path.replace(at, what.size(), by);
  };
  replace(tree_->root, "@");
  if (!here_.empty()) replace(here_.substr(0, here_.size() - 1), "@");
  replace(tree_->outside, "!");
  replace(tree_->root.substr(0, tree_->root.rfind('/')), "@/..");
  return path;
}

// A pack's device number belongs to no disk. A bit that only packs use distinguishes it from the
// kernel's numbers.
bool Player::is_copy(mode_t mode, dev_t device) const {
  static const bool has_pack =
      getenv("CUBESHIM_PACKS") != nullptr || getenv("CUBESHIM_BUCKETS") != nullptr;
  // The directory outside has no links, but a link of a pack can be made on its device.
  return tree_->is_packed() && has_pack && !S_ISDIR(mode) && !is_of_pack(device) &&
         (device != outside_ || S_ISLNK(mode));
}

bool Player::is_of_bucket(dev_t device) {
  static const bool has_bucket = getenv("CUBESHIM_BUCKETS") != nullptr;
  return has_bucket && is_of_pack(device);
}

// Returns the inode of an object, which is a hash of the bucket and the key (SEMANTICS, Buckets).
ino_t Player::inode_of_object(const Entry& entry) const {
  const std::string_view wanted = getenv("CUBESHIM_BUCKETS");
  const std::size_t equals = wanted.find('=');
  const std::string path = tree_->root + "/" + std::string(entry.name);
  const std::uint64_t words[] = {base::hash_path(wanted.substr(equals + 1)),
                                 base::hash_path(path.substr(equals + 1))};
  return hash_of(words, sizeof words) | 1;
}

bool Player::is_copy_at(int fd) const {
  struct ::stat st {};
  // A copy of an object has the stat of its path.
  if (!tree_->is_packed() || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) ||
      !(is_copy(st.st_mode, st.st_dev) || is_of_bucket(st.st_dev)))
    return false;
  // The name distinguishes our copies from memfds that the sequence has made itself.
  char name[64] = {};
  const std::string link = fmt::format("/proc/self/fd/{}", fd);
  return sys::readlink(link.c_str(), name, sizeof name - 1) > 0 &&
         std::string_view(name).starts_with("/memfd:cubeshim");
}

bool Player::is_packed_directory(int fd) const {
  struct ::stat st {};
  return tree_->is_packed() && fstat(fd, &st) == 0 && S_ISDIR(st.st_mode);
}

void Player::rewind_packed_directory(int fd) const {
  if (is_packed_directory(fd)) lseek(fd, 0, SEEK_SET);
}

dev_t Player::device_of(dev_t device) const { return tree_->is_packed() ? 0 : device; }

std::string Player::show_inode(mode_t mode, dev_t device, ino_t inode) {
  if (is_copy(mode, device)) return "?";
  auto [found, is_new] = inodes_.try_emplace({device_of(device), inode});
  if (is_new) found->second = reuses_inodes_ ? "new" : "new" + std::to_string(inodes_.size());
  return found->second;
}

std::string Player::show_blocks(ino_t inode, std::uint64_t blocks, std::uint64_t size) const {
  // A mapping of a file of a pack can be a mapping of a copy. So in a pack, the only file with
  // holes is recognized by its name.
  const auto found = inodes_.find({0, inode});
  const bool may_change = tree_->is_packed() ? found != inodes_.end() && found->second == "s64k"
                                             : mapped_.contains(inode);
  return blocks * 512 < size || may_change ? "any" : std::to_string(blocks);
}

std::string Player::show(const timespec& time) {
  return time.tv_sec < k_newest_age ? fmt::format("{}.{:09}", time.tv_sec - k_age, time.tv_nsec)
                                    : "now";
}

// Two times are not compared: the access time, which the library does not update after the fetch
// (SEMANTICS, "the access time does not move"), and the change time, which is always the current
// time.
std::string Player::show(const struct ::stat& st) {
  const bool is_file = S_ISREG(st.st_mode) || S_ISDIR(st.st_mode) || S_ISLNK(st.st_mode);
  const bool is_unlike = is_copy(st.st_mode, st.st_dev);
  const bool is_object = is_of_bucket(st.st_dev), is_listed = is_object && S_ISDIR(st.st_mode);
  const std::string links = is_unlike || is_listed ? "?" : std::to_string(st.st_nlink);
  const std::string size = is_listed ? "?" : std::to_string(st.st_size);
  const std::string blocks = is_unlike || is_object
                                 ? "?"
                                 : show_blocks(st.st_ino, static_cast<std::uint64_t>(st.st_blocks),
                                               static_cast<std::uint64_t>(st.st_size));
  return fmt::format("[ {} {:o} links {} owner {}:{} size {} blocks {} x{} {}]",
                     is_file ? show_inode(st.st_mode, st.st_dev, st.st_ino) : std::string("other"),
                     st.st_mode, links, st.st_uid, st.st_gid, size, blocks, st.st_blksize,
                     is_file ? show(st.st_mtim) : "");
}

void Player::spoil(const struct ::stat& st) {
  for (Map& map : maps_) map.spoiled = map.spoiled || map.inode == st.st_ino;
}
void Player::content_changed(const char* path, bool follow) {
  if (tree_->is_packed() && !std::string_view(path).starts_with(tree_->outside)) return;
  struct ::stat st {};
  if (!sys::failed(sys::fstatat(AT_FDCWD, path, &st, follow ? 0 : AT_SYMLINK_NOFOLLOW))) spoil(st);
}
void Player::content_changed(int fd) {
  struct ::stat st {};
  // Ignores an fd that is open only for reading, because the call cannot have changed its file. (To
  // the kernel, a served file is another file.)
  const long flags = sys::fcntl(fd, F_GETFL);
  if (sys::failed(flags) || (flags & O_ACCMODE) == O_RDONLY) return;
  if (!sys::failed(sys::fstat(fd, &st))) spoil(st);
}

}  // namespace cube::differ
