// The address of a server. Addresses are read from their text, and names are looked up in /etc/hosts: nothing else can be done
// safely inside a host. libc's resolver loads libraries that call our own hooks, allocates, and may take seconds.
// A name that is not there is told of once, and its server is left out.
// Thread safety: pure, but for the read of a file; no libc call that the library interposes.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <string_view>

#include "cache/base/result.h"

namespace cube::cache {

struct ServerAddress {
  union {
    sockaddr any;
    sockaddr_in v4;
    sockaddr_in6 v6;
  };
  socklen_t bytes = 0;
  ServerAddress() : v6{} {}
  int family() const { return any.sa_family; }
};

// "HOST:PORT" or "[ADDRESS]:PORT". ENOENT: a name that `hosts`, the text of a file such as /etc/hosts, does not have.
base::Result<ServerAddress> parse_server_address(std::string_view text, std::string_view hosts);
// With /etc/hosts.
base::Result<ServerAddress> find_server_address(std::string_view text);

}  // namespace cube::cache
