#include "device.h"

#include <linux/fuse.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>

namespace cube::lagfs::device {
namespace {

// INIT is the first request of a session. The kernel sends no other request before its reply.
std::atomic<bool> init_replied{false};

ssize_t receive(int fd, void* to, size_t size, void*) { return ::read(fd, to, size); }

ssize_t send(int fd, iovec* parts, int count, void*) {
  if (!init_replied.load(std::memory_order_relaxed) && !init_replied.exchange(true) && count == 2 &&
      parts[1].iov_len >= offsetof(fuse_init_out, flags) + sizeof(fuse_init_out::flags)) {
    static_cast<fuse_init_out*>(parts[1].iov_base)->flags |= FUSE_PARALLEL_DIROPS;
  }
  return ::writev(fd, parts, count);
}

}  // namespace

int install(fuse_session* session) {
  fuse_custom_io io{};
  io.read = receive;
  io.writev = send;
  return -fuse_session_custom_io(session, &io, fuse_session_fd(session));
}

}  // namespace cube::lagfs::device
