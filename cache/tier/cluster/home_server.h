// Determines the home of a key: the server of the cluster that keeps it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace cube::cache {

// Returns the index of the key's home server, by rendezvous hashing. The result does not depend on
// the order of the list, and adding or removing a server moves only the share of that server.
// Thread safety: pure; async-signal-safe.
std::size_t home_of_key(std::span<const std::string> servers, std::uint64_t key_hash);

}  // namespace cube::cache
