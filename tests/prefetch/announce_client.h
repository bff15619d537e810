// A client of the socket for announcements. It can send any bytes.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <string>
#include <vector>

#include "cache/base/unique_fd.h"
#include "prefetch/order/announced/announce_message.h"

namespace cube::prefetch::testing {

template <typename T>
std::string bytes_of(const T& message, std::string_view rest = {}) {
  return std::string(reinterpret_cast<const char*>(&message), sizeof message).append(rest);
}

inline std::string hello(std::uint32_t rank = 0) {
  HelloMessage message;
  message.rank = rank;
  return bytes_of(message);
}
inline std::string begin(std::uint64_t epoch, std::string_view base = {}) {
  BeginMessage message;
  message.epoch = epoch;
  return bytes_of(message, base);
}
inline std::string paths(std::uint64_t epoch, std::uint64_t first,
                         const std::vector<std::string>& names) {
  PathsMessage message;
  message.count = static_cast<std::uint32_t>(names.size());
  message.epoch = epoch;
  message.first = first;
  std::string text;
  for (const auto& name : names) text.append(name).push_back('\0');
  return bytes_of(message, text);
}
inline std::string end(std::uint64_t epoch, std::uint32_t flags = 0) {
  EndMessage message;
  message.epoch = epoch;
  message.flags = flags;
  return bytes_of(message);
}
inline std::string bye() { return bytes_of(ByeMessage{}); }

class AnnounceClient {
 public:
  AnnounceClient() = default;
  explicit AnnounceClient(const std::string& path) {
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    path.copy(name.sun_path, sizeof name.sun_path - 1);
    fd_.reset(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (connect(fd_.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0) fd_.reset();
  }
  bool is_connected() const { return static_cast<bool>(fd_); }
  int fd() const { return fd_.get(); }
  void close() { fd_.reset(); }
  // Sends a message, and waits until there is room for it. Returns false if the server has closed
  // the connection.
  bool say(std::string_view message) const {
    return send(fd_.get(), message.data(), message.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(message.size());
  }
  bool try_to_say(std::string_view message) const {
    return send(fd_.get(), message.data(), message.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
           static_cast<ssize_t>(message.size());
  }
  // Returns the next answer, or an empty text if the server has closed the connection.
  std::string hear() const {
    pollfd waits{fd_.get(), POLLIN, 0};
    EXPECT_EQ(poll(&waits, 1, 60'000), 1) << "no answer";
    char buffer[256];
    const ssize_t n = recv(fd_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    return {buffer, n > 0 ? static_cast<std::size_t>(n) : 0};
  }
  // The server will close the connection, but may send something first.
  void expect_to_be_dropped(const std::string& because) const {
    for (int i = 0; i < 100; ++i) {
      if (hear().empty()) return;
    }
    ADD_FAILURE() << "not dropped: " << because;
  }
  // Waits until the server reports that it has taken everything up to this sequence number.
  void hear_taken(std::uint64_t epoch, std::uint64_t sequence) const {
    while (true) {
      const std::string answer = hear();
      TakenMessage taken;
      if (answer.size() != sizeof taken) {
        ADD_FAILURE() << "no word of " << sequence;
        return;
      }
      answer.copy(reinterpret_cast<char*>(&taken), sizeof taken);
      if (taken.type != static_cast<std::uint32_t>(MessageType::taken)) continue;
      EXPECT_EQ(taken.epoch, epoch);
      EXPECT_LE(taken.sequence, sequence);
      if (taken.sequence == sequence || ::testing::Test::HasFailure()) return;
    }
  }

 private:
  base::UniqueFd fd_;
};

}  // namespace cube::prefetch::testing
