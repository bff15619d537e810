// The address of a server. The text can be a literal address, a name in /etc/hosts, or the path of
// a Unix socket. DnsQuery (dns_query.h) looks up other names. Thread safety: pure, except for
// reading a file. Makes no libc call that the library interposes.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <string_view>

#include "cache/base/result.h"

namespace cube::cache {

struct ServerAddress {
  union {
    sockaddr any;
    sockaddr_in v4;
    sockaddr_in6 v6;
    sockaddr_un local;
  };
  socklen_t bytes = 0;
  ServerAddress() : local{} {}
  int family() const { return any.sa_family; }
  friend bool operator==(const ServerAddress& a, const ServerAddress& b) {
    return a.bytes == b.bytes && std::memcmp(&a.local, &b.local, a.bytes) == 0;
  }
};

// Removes the first field from a line of /etc/hosts or /etc/resolv.conf, and returns the field. If
// no field is left, returns an empty text.
std::string_view take_field(std::string_view& line);
// Parses "HOST:PORT", "[ADDRESS]:PORT" or "/path/of/a/socket". `hosts`: a text in the format of
// /etc/hosts. ENOENT: HOST is a name that `hosts` does not contain.
base::Result<ServerAddress> parse_server_address(std::string_view text, std::string_view hosts);
// Like parse_server_address, but uses /etc/hosts of this machine.
base::Result<ServerAddress> find_server_address(std::string_view text);

}  // namespace cube::cache
