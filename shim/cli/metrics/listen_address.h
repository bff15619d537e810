// An address and a port to listen on, as 127.0.0.1:9437 or [::1]:9437. Thread safety: pure
// functions.
#pragma once

#include <sys/socket.h>

#include <optional>
#include <string>
#include <string_view>

namespace cube::cli {

struct ListenAddress {
  sockaddr_storage address{};
  socklen_t bytes = 0;
};

// Returns nothing if the text is not such an address.
std::optional<ListenAddress> parse_listen_address(const std::string& text);
// Tries to listen on the address. Returns why that fails, or an empty string.
std::string why_not_listening(const ListenAddress& address);

}  // namespace cube::cli
