// A message with one byte and some fds, for sendmsg and recvmsg. Thread safety: none.
#pragma once

#include <sys/socket.h>

#include <cstring>
#include <vector>

namespace cube::parity {

struct FdMessage {
  char byte = 'm';
  iovec part{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 8)] = {};
  msghdr head{};
  explicit FdMessage(std::size_t fds = 8) {
    head.msg_iov = &part;
    head.msg_iovlen = 1;
    head.msg_control = control;
    head.msg_controllen = CMSG_SPACE(sizeof(int) * fds);
  }
  FdMessage(const FdMessage&) = delete;
  FdMessage& operator=(const FdMessage&) = delete;
  void carry(const std::vector<int>& fds) {
    head.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
    cmsghdr* const c = CMSG_FIRSTHDR(&head);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
    std::memcpy(CMSG_DATA(c), fds.data(), sizeof(int) * fds.size());
  }
  std::vector<int> fds() {
    cmsghdr* const c = CMSG_FIRSTHDR(&head);
    if (c == nullptr || c->cmsg_type != SCM_RIGHTS) return {};
    std::vector<int> all((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    std::memcpy(all.data(), CMSG_DATA(c), sizeof(int) * all.size());
    return all;
  }
};

}  // namespace cube::parity
