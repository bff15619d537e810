#include "tests/differential/player.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "cache/base/hash.h"
#include "cache/base/sys.h"
#include "tests/differential/actor.h"

namespace cube::differ {

namespace sys = base::sys;

std::string error_name(int error) {
  const char* const name = strerrorname_np(error);
  return name != nullptr ? name : std::to_string(error);
}

std::uint64_t hash_of(const void* data, std::size_t n) { return base::hash_bytes(data, n); }

std::string Result::text() const {
  std::string text = std::to_string(value);
  if (failed()) return text + " " + (error == k_errno_kept ? "errno not set" : error_name(error));
  return error == k_errno_kept ? text : text + " and errno is " + error_name(error);
}

std::string Buffer::text(long read) const {
  const std::size_t n = read > 0 ? std::min(static_cast<std::size_t>(read), size_) : 0;
  for (std::size_t at = 0; at < bytes_.size(); ++at) {
    if (bytes_[at] == k_untouched || (at >= begin_ && at < begin_ + n)) continue;
    // A direct read of btrfs writes zeros to the rest of the buffer.
    const bool is_within = at >= begin_ && at < begin_ + size_;
    if (bytes_[at] != 0 || !is_within) return fmt::format("touched at {}", static_cast<long>(at) - static_cast<long>(begin_));
  }
  return n == 0 ? "" : fmt::format("{:016x}", hash_of(bytes_.data() + begin_, n));
}

Player::Player(Log& log, Actor& peer, Actor& outsider) : log_(log), peer_(peer), outsider_(outsider) {
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
  for (const Entry& entry : entries()) {
    struct ::stat st {};
    if (sys::failed(sys::fstatat(AT_FDCWD, tree.path_of(entry).c_str(), &st, AT_SYMLINK_NOFOLLOW))) continue;
    inodes_.try_emplace({st.st_dev, st.st_ino}, entry.name);
  }
  if (chdir(tree.root.c_str()) != 0) say("cannot enter the tree: {}", error_name(errno));
  position_ = 0;
  end_ = sequence.size();
  play_part(end_);
  // What is left open, whether the sequence has asked for it or not.
  const ::itimerval none{};
  signal(SIGALRM, SIG_IGN);
  setitimer(ITIMER_REAL, &none, nullptr);
  for (int fd = 0; fd < 110; ++fd) {
    if (fd == STDOUT_FILENO || fd == STDERR_FILENO) continue;  // the harness's
    const int flags = fcntl(fd, F_GETFD);
    if (flags < 0) continue;
    const int mode = fcntl(fd, F_GETFL);
    // A position in a directory is a cookie of the file system's.
    const off_t at = (mode & O_DIRECTORY) != 0 ? 0 : lseek(fd, 0, SEEK_CUR);
    say("left {}: {} 0{:o} at {}", fd, flags, mode, at);
  }
  close_all();
  reset();
}

void Player::play_one(const Op& op) {
  op_kinds()[op.kind].play(*this, op.a);
  leave_orphans();
}

// A stream whose number was closed behind its back is not used again (SEMANTICS, Limits: such a stream).
void Player::leave_orphans() {
  for (FILE*& stream : streams_) {
    if (stream != nullptr && fcntl(fileno(stream), F_GETFD) < 0) stream = nullptr;
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
  setitimer(ITIMER_REAL, &none, nullptr);  // its handler starts it again
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
  const std::string name(entry.name), absolute = tree_->path_of(entry);
  if (entry.is_outside()) return absolute;
  switch (spelling % 14) {
    case 1: return name;
    case 2: return "./" + name;
    case 3: return tree_->root + "/d/../" + name;
    case 4: return "d/../" + name;
    case 5: return tree_->root + "//./" + name;
    case 6: return absolute + "/";
    case 7: return absolute + "/.";
    case 8: return tree_->root + "/ld/../" + name;
    case 9: return "../" + name;
    case 10: return tree_->outside + "/sd/" + name;
    case 11: return "/proc/self/cwd/" + name;
    case 12: return name.starts_with("d/") ? tree_->root + "/ld" + name.substr(1) : "d/e/../../" + name;
    case 13: return "../r/" + name;
    default: return absolute;
  }
}

std::string Player::path_inside(std::int64_t entry, std::int64_t spelling) const {
  if (Player::entry(entry).type == EntryType::outside_hard_link) entry = 0;
  const std::int64_t kind = spelling % 14;
  return path(entry, kind == 10 || kind == 11 ? 0 : kind);
}

std::string Player::show(std::string path) const {
  const auto replace = [&](const std::string& what, const char* by) {
    for (std::size_t at = path.find(what); at != std::string::npos; at = path.find(what, at)) path.replace(at, what.size(), by);
  };
  replace(tree_->root, "@");
  replace(tree_->outside, "!");
  replace(tree_->root.substr(0, tree_->root.rfind('/')), "@/..");
  return path;
}

std::string Player::show_inode(dev_t device, ino_t inode) {
  auto [found, is_new] = inodes_.try_emplace({device, inode});
  if (is_new) found->second = reuses_inodes_ ? "new" : "new" + std::to_string(inodes_.size());
  return found->second;
}

std::string Player::show_blocks(ino_t inode, std::uint64_t blocks, std::uint64_t size) const {
  return blocks * 512 < size || mapped_.contains(inode) ? "any" : std::to_string(blocks);
}

std::string Player::show(const timespec& time) {
  return time.tv_sec < k_newest_age ? fmt::format("{}.{:09}", time.tv_sec - k_age, time.tv_nsec) : "now";
}

// Not compared: the access time, which stays as it was at the fetch (SEMANTICS, "the access time does not move"), and the
// time of the last status change, which is always now.
std::string Player::show(const struct ::stat& st) {
  const bool is_file = S_ISREG(st.st_mode) || S_ISDIR(st.st_mode) || S_ISLNK(st.st_mode);
  const std::string blocks =
      show_blocks(st.st_ino, static_cast<std::uint64_t>(st.st_blocks), static_cast<std::uint64_t>(st.st_size));
  return fmt::format("[{} {:o} links {} owner {}:{} size {} blocks {}x{} {}]",
                     is_file ? show_inode(st.st_dev, st.st_ino) : std::string("other"), st.st_mode, st.st_nlink, st.st_uid,
                     st.st_gid, st.st_size, blocks, st.st_blksize, is_file ? show(st.st_mtim) : "");
}

void Player::spoil(const struct ::stat& st) {
  for (Map& map : maps_) map.spoiled = map.spoiled || map.inode == st.st_ino;
}
void Player::content_changed(const char* path, bool follow) {
  struct ::stat st {};
  if (!sys::failed(sys::fstatat(AT_FDCWD, path, &st, follow ? 0 : AT_SYMLINK_NOFOLLOW))) spoil(st);
}
void Player::content_changed(int fd) {
  struct ::stat st {};
  // What is open for reading only is not changed by it (and is something else to the kernel where it is served).
  const long flags = sys::fcntl(fd, F_GETFL);
  if (sys::failed(flags) || (flags & O_ACCMODE) == O_RDONLY) return;
  if (!sys::failed(sys::fstat(fd, &st))) spoil(st);
}

}  // namespace cube::differ
