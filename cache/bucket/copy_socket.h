// Passes a kernel file with an object's bytes from the gateway to the process that asked for it.
// That process, the asker, sends its ticket over the gateway's Unix socket, and receives an fd.
// Asker and gateway each check that both run as the same user. Thread-safe. collect_copy and
// copy_of_bytes are async-signal-safe.
#pragma once

#include <cstdint>
#include <string>

#include "cache/base/unique_fd.h"
#include "cache/record/file_stat.h"
#include "cache/region/mailbox/mailbox.h"

namespace cube::cache {

// Called by the asker. The result is the lowest free fd, with its own offset. O_CLOEXEC, O_PATH,
// O_APPEND, O_NONBLOCK and O_SYNC in `flags` apply to the fd. ECONNREFUSED, ENOENT: no gateway
// listens. ESTALE: the gateway no longer has the copy.
base::Result<base::UniqueFd> collect_copy(const std::string& socket_path, const MailTicket& ticket,
                                          int flags);
// Like collect_copy, but the file gets a copy of the bytes at `data`.
base::Result<base::UniqueFd> copy_of_bytes(const std::byte* data, const FileStat& stat, int flags);

// The gateway calls the following functions.

// Gives the finished file the mode and the mtime of `stat`. `fd` must be open for writing, and the
// file must not be mapped for writing. A memfd cannot be changed afterwards.
void seal_copy(int fd, const FileStat& stat);
// Listens at the path. Removes a socket that a dead gateway has left there.
base::Result<base::UniqueFd> listen_for_copies(const std::string& socket_path);
// Accepts the next asker, and sets `ticket` to its ticket. EAGAIN: no asker waits, or the asker
// belongs to another user, or it sent no ticket.
base::Result<base::UniqueFd> accept_copy(int listener, MailTicket& ticket);
// Sends the fd of a copy to an asker. `fd` -1: the gateway does not have the copy.
bool send_copy(int socket, int fd);

}  // namespace cube::cache
