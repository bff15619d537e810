// The operations that lagfs knows, and the latency class of each operation. Every list of
// operations (names, counters, fault rules, latencies) is generated from the table below.
//
// Thread safety: constants only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace cube::lagfs {

// Latency classes of operations; one option sets the latency of each class.
enum class Cost : std::uint8_t {
  none,
  lookup,
  open,
  read,
  getattr,
  readdir,
  opendir,
  close,
  other
};
inline constexpr std::size_t k_cost_count = 9;

// FORGET is not in the table: it only reports that the kernel forgot a name, and a network file
// system sends no message for it. IOCTL has no latency for the same reason. It is counted, so that
// a count of zero really means that there was no operation.
#define CUBE_LAGFS_OPS(X)   \
  X(lookup, lookup)         \
  X(getattr, getattr)       \
  X(setattr, other)         \
  X(readlink, other)        \
  X(mknod, other)           \
  X(mkdir, other)           \
  X(unlink, other)          \
  X(rmdir, other)           \
  X(symlink, other)         \
  X(rename, other)          \
  X(link, other)            \
  X(open, open)             \
  X(create, open)           \
  X(read, read)             \
  X(write, other)           \
  X(flush, close)           \
  X(release, close)         \
  X(fsync, other)           \
  X(opendir, opendir)       \
  X(readdir, readdir)       \
  X(readdirplus, readdir)   \
  X(releasedir, close)      \
  X(fsyncdir, other)        \
  X(statfs, other)          \
  X(getxattr, other)        \
  X(setxattr, other)        \
  X(listxattr, other)       \
  X(removexattr, other)     \
  X(fallocate, other)       \
  X(lseek, other)           \
  X(copy_file_range, other) \
  X(ioctl, none)

enum class Op : std::uint8_t {
#define X(name, cost) name,
  CUBE_LAGFS_OPS(X)
#undef X
};

inline constexpr auto k_op_names = std::to_array<std::string_view>({
#define X(name, cost) #name,
    CUBE_LAGFS_OPS(X)
#undef X
});
inline constexpr std::size_t k_op_count = k_op_names.size();

inline constexpr std::array<Cost, k_op_count> k_op_costs = {
#define X(name, cost) Cost::cost,
    CUBE_LAGFS_OPS(X)
#undef X
};

inline constexpr std::size_t index_of(Op op) { return static_cast<std::size_t>(op); }
inline constexpr std::size_t index_of(Cost cost) { return static_cast<std::size_t>(cost); }
inline constexpr Cost cost_of(Op op) { return k_op_costs[index_of(op)]; }
inline constexpr std::string_view name_of(Op op) { return k_op_names[index_of(op)]; }

inline constexpr std::optional<Op> find_op(std::string_view name) {
  for (std::size_t i = 0; i < k_op_count; ++i) {
    if (k_op_names[i] == name) return static_cast<Op>(i);
  }
  return std::nullopt;
}

}  // namespace cube::lagfs
