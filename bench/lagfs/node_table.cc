#include "node_table.h"

#include <unistd.h>

namespace cube::lagfs {
namespace {

struct stat stat_of(int fd) {
  struct stat st {};
  fstatat(fd, "", &st, AT_EMPTY_PATH);
  return st;
}

}  // namespace

Node::~Node() { close(fd_); }

NodeTable::NodeTable(int root_fd) : root_(root_fd, stat_of(root_fd)) {}

fuse_ino_t NodeTable::acquire(int fd, const struct stat& st) {
  // A bind mount or a loop can show the root inside itself, but for the kernel the root must be one
  // inode.
  auto fresh = std::make_unique<Node>(fd, st);
  if (fresh->key() == root_.key()) return FUSE_ROOT_ID;

  Shard& shard = shard_of(fresh->key());
  const std::lock_guard lock(shard.mutex);
  // If the inode is already known, `fresh` is not inserted and closes its fd.
  Node& node = *shard.nodes.try_emplace(fresh->key(), std::move(fresh)).first->second;
  ++node.lookups_;
  return reinterpret_cast<fuse_ino_t>(&node);
}

void NodeTable::release(fuse_ino_t id, std::uint64_t lookups) {
  if (id == FUSE_ROOT_ID) return;
  Node& node = at(id);
  const NodeKey key = node.key();
  std::unique_ptr<Node> dead;  // closed after the lock is released
  Shard& shard = shard_of(key);
  const std::lock_guard lock(shard.mutex);
  node.lookups_ -= lookups;
  if (node.lookups_ > 0) return;
  auto found = shard.nodes.find(key);
  dead = std::move(found->second);
  shard.nodes.erase(found);
}

}  // namespace cube::lagfs
