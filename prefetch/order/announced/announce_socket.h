// The socket file on which jobs announce what they will read. Its name is public and lies in a
// directory that others may write to, so neither the name nor a peer is trusted. Thread safety:
// pure functions over the kernel.
#pragma once

#include <cstddef>
#include <string>

#include "cache/base/unique_fd.h"

namespace cube::prefetch {

struct ListeningSocket {
  base::UniqueFd fd;
  std::uint64_t device = 0, inode = 0;
};

// A socket file of our own that is in the way is taken for one that a dead process left: only one
// process at a time may listen, and the caller is that. Anything else there stays, and `why` is a
// line.
base::Result<ListeningSocket> listen_at(const std::string& path, std::string& why);
// If it is still the file that listen_at made.
void remove_socket(const std::string& path, std::uint64_t device, std::uint64_t inode);

// So that a thread that waits for clients looks up. From any fd table; nothing is sent.
void knock(const std::string& path);

// The peer must be of our own user, or root.
bool is_trusted_peer(int fd);

// At most one message. The number of its bytes, which is more than `capacity` where it was cut off;
// 0 at the end, or -errno.
long receive_message(int fd, void* to, std::size_t capacity);
// All or nothing, now.
bool send_message(int fd, const void* from, std::size_t size);

}  // namespace cube::prefetch
