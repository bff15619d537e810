// Determines the home of a key: the server of the cluster that keeps it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace cube::cache {

// Returns the index of the key's home server, by rendezvous hashing. The choice of the server does
// not depend on the order of the list. If a server is added or removed, only its own share of the
// keys gets another home. Thread safety: pure; async-signal-safe.
std::size_t home_of_key(std::span<const std::string> servers, std::uint64_t key_hash);

}  // namespace cube::cache
