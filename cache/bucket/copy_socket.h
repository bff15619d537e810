// Passes a kernel file with an object's bytes from the gateway to the process that asked for it.
// The asking process sends its ticket over the gateway's Unix socket and receives an fd. Each
// process checks that the other process runs as the same user. Thread-safe. The asker's part is
// async-signal-safe.
#pragma once

#include <cstdint>
#include <string>

#include "cache/base/unique_fd.h"
#include "cache/record/file_stat.h"
#include "cache/region/mailbox/mailbox.h"

namespace cube::cache {

// The asker's part. The result is the lowest free fd. The fd has its own offset, and honours
// O_CLOEXEC, O_PATH, O_APPEND, O_NONBLOCK and O_SYNC of `flags`. ECONNREFUSED, ENOENT: no gateway
// listens. ESTALE: the gateway no longer has the copy.
base::Result<base::UniqueFd> collect_copy(const std::string& socket_path, const MailTicket& ticket,
                                          int flags);
// Creates such an fd from a copy of bytes in memory.
base::Result<base::UniqueFd> copy_of_bytes(const std::byte* data, const FileStat& stat, int flags);

// The gateway's part.

// Gives the finished file the mode and the mtime of `stat`. A memfd cannot be changed afterwards.
void seal_copy(int fd, const FileStat& stat);
// Listens on the path, and removes a socket that a dead gateway has left there.
base::Result<base::UniqueFd> listen_for_copies(const std::string& socket_path);
// The next asker and its ticket. EAGAIN: no asker waits, or the asker belongs to another user or
// sent no ticket.
base::Result<base::UniqueFd> accept_copy(int listener, MailTicket& ticket);
// `fd` -1: the gateway does not have that copy.
bool send_copy(int socket, int fd);

}  // namespace cube::cache
