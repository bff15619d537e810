// A question to memcached over TCP, in its text protocol.
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "cache/base/unique_fd.h"
#include "shim/cli/pool.h"
#include "shim/cli/program_file.h"

namespace cube::cli {
namespace {

using Clock = std::chrono::steady_clock;

bool waits_for(int fd, short events, Clock::time_point end) {
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0) return false;
    pollfd one{fd, events, 0};
    const int n = poll(&one, 1, static_cast<int>(left));
    if (n != 0 && !(n < 0 && errno == EINTR)) return n > 0;
  }
}

base::UniqueFd connected(const std::string& address, unsigned port, Clock::time_point end) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return base::UniqueFd();
  base::UniqueFd fd(socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  int error = fd && connect(fd.get(), found->ai_addr, found->ai_addrlen) != 0 ? errno : 0;
  freeaddrinfo(found);
  if (error == EINPROGRESS && waits_for(fd.get(), POLLOUT, end)) {
    socklen_t size = sizeof error;
    getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  }
  return error == 0 ? std::move(fd) : base::UniqueFd();
}

}  // namespace

std::optional<std::map<std::string, std::string>> ask_memcached(const std::string& address, unsigned port,
                                                                std::string_view question, int timeout_ms) {
  const auto end = Clock::now() + std::chrono::milliseconds(timeout_ms);
  const bool is_any = address == "0.0.0.0" || address == "::";
  const base::UniqueFd fd = connected(is_any ? (address == "::" ? "::1" : "127.0.0.1") : address, port, end);
  const std::string line = std::string(question) + "\r\n";
  if (!fd || send(fd.get(), line.data(), line.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(line.size())) return std::nullopt;
  std::string text;
  while (!text.ends_with("END\r\n")) {
    char some[4096];
    if (text.size() > 1 << 20 || !waits_for(fd.get(), POLLIN, end)) return std::nullopt;
    const ssize_t n = recv(fd.get(), some, sizeof some, 0);
    if (n <= 0) return std::nullopt;
    text.append(some, static_cast<std::size_t>(n));
  }
  std::map<std::string, std::string> answer;
  for (const std::string& row : split_words(text, "\r\n")) {
    const auto words = split_words(row, " ");
    if (words.size() == 3 && words[0] == "STAT") answer[words[1]] = words[2];
  }
  return answer;
}

}  // namespace cube::cli
