// The socket file on which jobs announce their reads. It has a public name in a directory where
// others may write, so neither the name nor a peer is trusted. Thread safety: pure functions over
// the kernel.
#pragma once

#include <cstddef>
#include <string>

#include "cache/base/unique_fd.h"

namespace cube::prefetch {

struct ListeningSocket {
  base::UniqueFd fd;
  std::uint64_t device = 0, inode = 0;
};

// Listens at `path`. Only one process at a time may listen, and the caller is that process. So an
// existing socket file of our own user is taken for the file of a dead process and is replaced. Any
// other file is left alone; the call then fails, and `why` is one line.
base::Result<ListeningSocket> listen_at(const std::string& path, std::string& why);
// Removes the socket file if it is still the one that listen_at made.
void remove_socket(const std::string& path, std::uint64_t device, std::uint64_t inode);

// Wakes a thread that waits for clients. Works from any fd table; sends nothing.
void knock(const std::string& path);

// Returns whether the peer runs as our own user or as root.
bool is_trusted_peer(int fd);

// Receives at most one message. Returns its size in bytes (larger than `capacity` if the message
// was cut off), 0 at the end of the connection, or -errno.
long receive_message(int fd, void* to, std::size_t capacity);
// Sends the whole message or nothing, without waiting.
bool send_message(int fd, const void* from, std::size_t size);

}  // namespace cube::prefetch
