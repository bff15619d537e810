// The operations that describe an inode: attributes, link targets, extended attributes, the file
// system's size.
#include <fcntl.h>
#include <limits.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <vector>

#include "operations.h"

namespace cube::lagfs::operations {
namespace {

// Uses the node's own fd, because the path of a deleted file would not work.
int stat_node(const Node& node, struct stat& st) {
  return errno_if(::fstatat(node.fd(), "", &st, AT_EMPTY_PATH) != 0);
}

int set_size(const Node& node, off_t size, const fuse_file_info* file) {
  return errno_if((file != nullptr ? ::ftruncate(fd_of(file), size)
                                   : ::truncate(path_of(node).c_str(), size)) != 0);
}

int set_owner(const Node& node, const struct stat& to, int to_set) {
  constexpr uid_t k_keep_user = static_cast<uid_t>(-1);
  constexpr gid_t k_keep_group = static_cast<gid_t>(-1);
  const uid_t user = (to_set & FUSE_SET_ATTR_UID) != 0 ? to.st_uid : k_keep_user;
  const gid_t group = (to_set & FUSE_SET_ATTR_GID) != 0 ? to.st_gid : k_keep_group;
  return errno_if(::fchownat(node.fd(), "", user, group, AT_EMPTY_PATH) != 0);
}

int set_times(const Node& node, const struct stat& to, int to_set) {
  timespec times[2] = {{0, UTIME_OMIT}, {0, UTIME_OMIT}};
  if ((to_set & FUSE_SET_ATTR_ATIME) != 0) times[0] = to.st_atim;
  if ((to_set & FUSE_SET_ATTR_MTIME) != 0) times[1] = to.st_mtim;
  if ((to_set & FUSE_SET_ATTR_ATIME_NOW) != 0) times[0].tv_nsec = UTIME_NOW;
  if ((to_set & FUSE_SET_ATTR_MTIME_NOW) != 0) times[1].tv_nsec = UTIME_NOW;
  return errno_if(::utimensat(node.fd(), "", times, AT_EMPTY_PATH) != 0);
}

int apply(const Node& node, const struct stat& to, int to_set, const fuse_file_info* file) {
  int error = 0;
  // Sets the owner before the mode, because a change of owner clears the set-user-id bit. Sets the
  // size before the times, because a change of size changes the times.
  if ((to_set & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID)) != 0) error = set_owner(node, to, to_set);
  if (error == 0 && (to_set & FUSE_SET_ATTR_MODE) != 0) {
    error = errno_if(::chmod(path_of(node).c_str(), to.st_mode & 07777) != 0);
  }
  if (error == 0 && (to_set & FUSE_SET_ATTR_SIZE) != 0) error = set_size(node, to.st_size, file);
  if (error == 0 && (to_set & (FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_MTIME)) != 0)
    error = set_times(node, to, to_set);
  return error;
}

// getxattr and listxattr share a protocol: size 0 requests the size, any other size requests the
// value.
template <typename Get>
void reply_xattr(fuse_req_t request, Call& call, size_t size, Get get) {
  std::vector<char> buffer(size);
  const ssize_t length = get(buffer.data(), size);
  if (length < 0) return call.finish(errno);
  call.wait();
  if (size == 0) {
    fuse_reply_xattr(request, static_cast<size_t>(length));
  } else {
    fuse_reply_buf(request, buffer.data(), static_cast<size_t>(length));
  }
}

}  // namespace

void getattr(fuse_req_t request, fuse_ino_t id, fuse_file_info*) {
  const Node& node = node_at(request, id);
  Call call(request, Op::getattr, node.is_data_file());
  if (call.refused()) return;
  struct stat st {};
  if (const int error = stat_node(node, st)) return call.finish(error);
  origin_of(request).script.lie(st);
  call.wait();
  fuse_reply_attr(request, &st, origin_of(request).options.attr_timeout);
}

void setattr(fuse_req_t request, fuse_ino_t id, struct stat* attributes, int to_set,
             fuse_file_info* file) {
  const Node& node = node_at(request, id);
  Call call(request, Op::setattr, node.is_data_file());
  if (call.refused()) return;
  struct stat st {};
  int error = apply(node, *attributes, to_set, file);
  if (error == 0) error = stat_node(node, st);
  if (error != 0) return call.finish(error);
  origin_of(request).script.lie(st);
  call.wait();
  fuse_reply_attr(request, &st, origin_of(request).options.attr_timeout);
}

void readlink(fuse_req_t request, fuse_ino_t id) {
  const Node& node = node_at(request, id);
  Call call(request, Op::readlink, false);
  if (call.refused()) return;
  char target[PATH_MAX + 1];
  const ssize_t length = ::readlinkat(node.fd(), "", target, PATH_MAX);
  if (length < 0) return call.finish(errno);
  target[length] = '\0';
  call.wait();
  fuse_reply_readlink(request, target);
}

void statfs(fuse_req_t request, fuse_ino_t id) {
  // Describes the file system and not a file, so it does not matter which path the client named.
  Call call(request, Op::statfs, false);
  if (call.refused()) return;
  struct statvfs st {};
  if (::fstatvfs(node_at(request, id).fd(), &st) != 0) return call.finish(errno);
  call.wait();
  fuse_reply_statfs(request, &st);
}

void getxattr(fuse_req_t request, fuse_ino_t id, const char* name, size_t size) {
  const Node& node = node_at(request, id);
  Call call(request, Op::getxattr, node.is_data_file());
  if (call.refused()) return;
  reply_xattr(request, call, size, [&](char* to, size_t room) {
    return ::getxattr(path_of(node).c_str(), name, to, room);
  });
}

void setxattr(fuse_req_t request, fuse_ino_t id, const char* name, const char* value, size_t size,
              int flags) {
  const Node& node = node_at(request, id);
  Call call(request, Op::setxattr, node.is_data_file());
  if (call.refused()) return;
  call.finish(errno_if(::setxattr(path_of(node).c_str(), name, value, size, flags) != 0));
}

void listxattr(fuse_req_t request, fuse_ino_t id, size_t size) {
  const Node& node = node_at(request, id);
  Call call(request, Op::listxattr, node.is_data_file());
  if (call.refused()) return;
  reply_xattr(request, call, size,
              [&](char* to, size_t room) { return ::listxattr(path_of(node).c_str(), to, room); });
}

void removexattr(fuse_req_t request, fuse_ino_t id, const char* name) {
  const Node& node = node_at(request, id);
  Call call(request, Op::removexattr, node.is_data_file());
  if (call.refused()) return;
  call.finish(errno_if(::removexattr(path_of(node).c_str(), name) != 0));
}

}  // namespace cube::lagfs::operations
