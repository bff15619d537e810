// The server of the cluster that keeps a key, its home.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace cube::cache {

// Returns the index of the key's home server, by rendezvous hashing: it does not depend on the
// order of the list, and adding or removing a server moves only that server's share. Pure;
// async-signal-safe.
std::size_t home_of_key(std::span<const std::string> servers, std::uint64_t key_hash);

}  // namespace cube::cache
