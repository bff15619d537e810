#include "shim/cli/metrics/listen_address.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "cache/base/error_text.h"
#include "cache/base/words.h"

namespace cube::cli {
namespace {

template <typename Address>
ListenAddress made_of(const Address& address) {
  ListenAddress result;
  static_assert(sizeof address <= sizeof result.address);
  std::memcpy(&result.address, &address, sizeof address);
  result.bytes = sizeof address;
  return result;
}

}  // namespace

std::optional<ListenAddress> parse_listen_address(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) return {};
  const auto port = base::number_of<std::uint16_t>(std::string_view(text).substr(colon + 1));
  if (!port) return {};
  std::string host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(*port);
    host = host.substr(1, host.size() - 2);
    if (inet_pton(AF_INET6, host.c_str(), &address.sin6_addr) != 1) return {};
    return made_of(address);
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(*port);
  if (inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) return {};
  return made_of(address);
}

std::string why_not_listening(const ListenAddress& address) {
  const int fd = socket(address.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return base::text_of_error(errno);
  // The server also sets this option, so that closing connections of an earlier server do not
  // prevent it from listening.
  const int yes = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  const bool can =
      bind(fd, reinterpret_cast<const sockaddr*>(&address.address), address.bytes) == 0 &&
      listen(fd, 1) == 0;
  std::string why = can ? "" : base::text_of_error(errno);
  close(fd);
  return why;
}

}  // namespace cube::cli
