// Encodes questions to name servers, and decodes their answers (RFC 1035). Supports only lookups of
// addresses, and does no I/O. An answer comes from the network, so it may contain any bytes. Thread
// safety: pure functions; nothing is allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "cache/tier/cluster/server_address.h"

namespace cube::cache {

enum class DnsType : std::uint16_t { v4 = 1, v6 = 28 };

inline constexpr std::size_t k_most_dns_bytes = 512;  // the maximum size of a datagram
// Writes a question to `to`, and returns its size in bytes. 0: the name is not valid.
std::size_t write_dns_question(std::string_view name, DnsType type, std::uint16_t id,
                               std::span<std::byte, k_most_dns_bytes> to);

struct DnsAnswer {
  enum class Kind : std::uint8_t {
    address,
    none,     // the name has no address of this type
    no_name,  // there is no such name
    failed,   // the server could not answer
    not_ours  // the message does not answer our question
  };
  Kind kind = Kind::not_ours;
  // The address, without a port. If the answer contains several addresses, the smallest one is
  // used, so that all nodes use the same address.
  ServerAddress address;
};
DnsAnswer parse_dns_answer(std::span<const std::byte> bytes, std::string_view name, DnsType type,
                           std::uint16_t id);

}  // namespace cube::cache
