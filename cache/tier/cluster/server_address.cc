#include "cache/tier/cluster/server_address.h"

#include <arpa/inet.h>

#include <cerrno>
#include <charconv>
#include <cstring>

#include "cache/base/libc_functions.h"
#include "cache/base/memory/mapping.h"
#include "cache/base/sys.h"

namespace cube::cache {
namespace {

// Parses a literal address, which has no port.
bool parse_literal(std::string_view host, ServerAddress& address) {
  char text[INET6_ADDRSTRLEN + 1] = {};
  if (host.size() >= sizeof text) return false;
  std::memcpy(text, host.data(), host.size());
  if (base::g_libc.inet_pton(AF_INET, text, &address.v4.sin_addr) == 1) {
    address.v4.sin_family = AF_INET;
    address.bytes = sizeof address.v4;
    return true;
  }
  address = {};
  if (base::g_libc.inet_pton(AF_INET6, text, &address.v6.sin6_addr) != 1) return false;
  address.v6.sin6_family = AF_INET6;
  address.bytes = sizeof address.v6;
  return true;
}

bool find_in_hosts(std::string_view hosts, std::string_view name, ServerAddress& address) {
  while (!hosts.empty()) {
    std::string_view line = hosts.substr(0, hosts.find('\n'));
    hosts.remove_prefix(std::min(line.size() + 1, hosts.size()));
    line = line.substr(0, line.find('#'));
    const std::string_view literal = take_field(line);
    for (std::string_view field = take_field(line); !field.empty(); field = take_field(line)) {
      if (field == name && parse_literal(literal, address)) return true;
    }
  }
  return false;
}

}  // namespace

std::string_view take_field(std::string_view& line) {
  const std::size_t begin = std::min(line.find_first_not_of(" \t\r"), line.size());
  const std::size_t end = std::min(line.find_first_of(" \t\r", begin), line.size());
  const std::string_view word = line.substr(begin, end - begin);
  line.remove_prefix(end);
  return word;
}

base::Result<ServerAddress> parse_server_address(std::string_view text, std::string_view hosts) {
  if (text.starts_with('/')) {
    ServerAddress address;
    if (text.size() >= sizeof address.local.sun_path) return base::fail(ENAMETOOLONG);
    address.local.sun_family = AF_UNIX;
    std::memcpy(address.local.sun_path, text.data(), text.size());
    address.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + text.size() + 1);
    return address;
  }
  const std::size_t colon = text.rfind(':');
  std::uint16_t port = 0;
  if (colon == std::string_view::npos) return base::fail(EINVAL);
  const std::string_view digits = text.substr(colon + 1);
  if (std::from_chars(digits.data(), digits.data() + digits.size(), port).ec != std::errc{})
    return base::fail(EINVAL);
  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  ServerAddress address;
  if (!parse_literal(host, address) && !find_in_hosts(hosts, host, address))
    return base::fail(ENOENT);
  // The port has the same offset in both structures.
  static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
  address.v4.sin_port = htons(port);
  return address;
}

base::Result<ServerAddress> find_server_address(std::string_view text) {
  auto found = parse_server_address(text, {});
  if (found || found.error().value != ENOENT) return found;
  constexpr std::size_t k_most = 1 << 20;
  const auto room = base::Mapping::anonymous(k_most);
  if (!room) return base::fail(ENOMEM);
  char* const hosts = reinterpret_cast<char*>(room->data());
  const long n = base::sys::read_small_file("/etc/hosts", hosts, k_most);
  return parse_server_address(text,
                              {hosts, base::sys::failed(n) ? 0 : static_cast<std::size_t>(n)});
}

}  // namespace cube::cache
