// The inodes that the kernel knows: one Node for each (device, inode) of the source, so hard links
// share it.
//
// A node's O_PATH fd keeps its inode alive, so the inode number cannot be reused while the node is
// in the table. The kernel's id of a node is its address; FUSE_ROOT_ID is the root. The shard's
// lock guards the count of lookups that the kernel holds. A node is destroyed when the kernel has
// returned all its lookups.
//
// Thread safety: all members of NodeTable may be called from any thread. A Node is immutable except
// for its count. A node exists while the kernel holds a lookup of it, and the kernel holds a lookup
// of every id that it sends.
#pragma once

#include <fuse_lowlevel.h>
#include <sys/stat.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace cube::lagfs {

struct NodeKey {
  dev_t device;
  ino_t inode;

  bool operator==(const NodeKey&) const = default;
};

class Node {
 public:
  Node(int fd, const struct stat& st) : fd_(fd), key_{st.st_dev, st.st_ino}, mode_(st.st_mode) {}
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  int fd() const { return fd_; }  // O_PATH
  const NodeKey& key() const { return key_; }
  bool is_data_file() const { return S_ISREG(mode_); }

 private:
  friend class NodeTable;

  int fd_;
  NodeKey key_;
  mode_t mode_;
  std::uint64_t lookups_ = 0;  // guarded by the shard
};

class NodeTable {
 public:
  // Takes over `root_fd`, an O_PATH fd of the source directory.
  explicit NodeTable(int root_fd);

  Node& at(fuse_ino_t id) { return id == FUSE_ROOT_ID ? root_ : *reinterpret_cast<Node*>(id); }

  // Counts one more lookup of the inode that `fd` and `st` describe, and returns its id. Takes over
  // `fd`, which is an O_PATH fd.
  fuse_ino_t acquire(int fd, const struct stat& st);
  // Subtracts `lookups` that the kernel has returned, or whose reply never arrived.
  void release(fuse_ino_t id, std::uint64_t lookups);

 private:
  struct Hash {
    std::size_t operator()(const NodeKey& key) const noexcept {
      return (key.inode ^ (key.device << 20)) * 0x9e3779b97f4a7c15U;
    }
  };
  struct Shard {
    std::mutex mutex;
    std::unordered_map<NodeKey, std::unique_ptr<Node>, Hash> nodes;
  };
  static constexpr std::size_t k_shards = 64;

  Shard& shard_of(const NodeKey& key) { return shards_[(Hash{}(key) >> 40) % k_shards]; }

  Node root_;
  std::array<Shard, k_shards> shards_;
};

}  // namespace cube::lagfs
