// The messages of the socket on which a job announces its reads (doc/FORMAT.md). A message is one
// datagram of a SOCK_SEQPACKET socket. Its sender is not trusted, so each field is checked here
// before it is used. Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string_view>

namespace cube::prefetch {

inline constexpr std::uint32_t k_announce_magic = 0x41425543;  // "CUBA"
inline constexpr std::uint32_t k_announce_version = 1;
inline constexpr std::size_t k_longest_message = 64 << 10;

enum class MessageType : std::uint32_t {
  hello = 1,
  begin = 2,
  paths = 3,
  end = 4,
  bye = 5,
  taken = 6
};

struct HelloMessage {
  std::uint32_t type = static_cast<std::uint32_t>(MessageType::hello);
  std::uint32_t magic = k_announce_magic, version = k_announce_version, rank = 0, world = 0,
                zero = 0;
  std::uint64_t job = 0;
};
struct BeginMessage {  // followed by the base directory
  std::uint32_t type = static_cast<std::uint32_t>(MessageType::begin), zero = 0;
  std::uint64_t epoch = 0;
};
struct PathsMessage {  // followed by the paths, each terminated by a zero
  std::uint32_t type = static_cast<std::uint32_t>(MessageType::paths), count = 0;
  std::uint64_t epoch = 0, first = 0;
};
struct EndMessage {
  std::uint32_t type = static_cast<std::uint32_t>(MessageType::end), flags = 0;
  std::uint64_t epoch = 0;
};
// The client withdraws all its paths that have not been handed on.
inline constexpr std::uint32_t k_end_drops = 1;
struct ByeMessage {
  std::uint32_t type = static_cast<std::uint32_t>(MessageType::bye), zero = 0;
};
// The server's answers.
struct WelcomeMessage {
  std::uint32_t type = static_cast<std::uint32_t>(MessageType::hello);
  std::uint32_t magic = k_announce_magic, version = k_announce_version, pid = 0;
  std::uint64_t server = 0;
};
struct TakenMessage {
  std::uint32_t type = static_cast<std::uint32_t>(MessageType::taken), zero = 0;
  std::uint64_t epoch = 0, sequence = 0;
};
static_assert(sizeof(HelloMessage) == 32 && sizeof(BeginMessage) == 16 &&
              sizeof(PathsMessage) == 24);
static_assert(sizeof(EndMessage) == 16 && sizeof(ByeMessage) == 8 && sizeof(WelcomeMessage) == 24 &&
              sizeof(TakenMessage) == 24);

// One parsed message of a client. `type` says which other fields are meaningful.
struct ClientMessage {
  MessageType type = MessageType::bye;
  std::uint32_t version = 0, rank = 0, world = 0, count = 0;
  bool drops = false;
  std::uint64_t job = 0, epoch = 0, first = 0;
  std::string_view text;  // begin: the base directory; paths: all paths
};

// Returns null, or the reason why the message is invalid.
const char* read_message(std::string_view bytes, ClientMessage& message);

}  // namespace cube::prefetch
