#include "prefetch/order/announced/announce_message.h"

#include <algorithm>
#include <climits>
#include <cstring>

namespace cube::prefetch {
namespace {

constexpr const char* k_cut_off = "a message is cut off";
constexpr const char* k_unknown = "a message has bits that this version does not know";

// Copies the fixed part of a message. Returns false if the message is too short, or if more bytes
// follow and `rest` is null.
template <typename T>
bool get(std::string_view bytes, T& fixed, std::string_view* rest = nullptr) {
  if (bytes.size() < sizeof fixed || (rest == nullptr && bytes.size() != sizeof fixed))
    return false;
  std::memcpy(&fixed, bytes.data(), sizeof fixed);
  if (rest != nullptr) *rest = bytes.substr(sizeof fixed);
  return true;
}

const char* read_hello(std::string_view bytes, ClientMessage& message) {
  HelloMessage hello;
  if (!get(bytes, hello)) return k_cut_off;
  if (hello.magic != k_announce_magic) return "it does not speak this protocol";
  if (hello.zero != 0) return k_unknown;
  message.version = hello.version;
  message.rank = hello.rank;
  message.world = hello.world;
  message.job = hello.job;
  return nullptr;
}

const char* read_begin(std::string_view bytes, ClientMessage& message) {
  BeginMessage begin;
  if (!get(bytes, begin, &message.text)) return k_cut_off;
  if (begin.zero != 0) return k_unknown;
  const bool is_good =
      message.text.empty() || (message.text.front() == '/' && message.text.size() < PATH_MAX &&
                               message.text.find('\0') == std::string_view::npos);
  if (!is_good) return "a base directory is not an absolute path";
  message.epoch = begin.epoch;
  return nullptr;
}

const char* read_paths(std::string_view bytes, ClientMessage& message) {
  PathsMessage paths;
  if (!get(bytes, paths, &message.text)) return k_cut_off;
  const std::string_view text = message.text;
  if (text.empty() || text.back() != '\0') return k_cut_off;
  if (text.front() == '\0' || text.find(std::string_view("\0\0", 2)) != std::string_view::npos)
    return "a path is empty";
  if (static_cast<std::uint64_t>(std::count(text.begin(), text.end(), '\0')) != paths.count)
    return "paths are miscounted";
  if (paths.first > UINT64_MAX - paths.count) return "a sequence number is too large";
  message.count = paths.count;
  message.epoch = paths.epoch;
  message.first = paths.first;
  return nullptr;
}

const char* read_end(std::string_view bytes, ClientMessage& message) {
  EndMessage end;
  if (!get(bytes, end)) return k_cut_off;
  if ((end.flags & ~k_end_drops) != 0) return k_unknown;
  message.epoch = end.epoch;
  message.drops = (end.flags & k_end_drops) != 0;
  return nullptr;
}

}  // namespace

const char* read_message(std::string_view bytes, ClientMessage& message) {
  std::uint32_t type = 0;
  if (bytes.size() > k_longest_message) return "a message is too long";
  if (!get(bytes.substr(0, sizeof type), type)) return k_cut_off;
  message.type = static_cast<MessageType>(type);
  switch (message.type) {
    case MessageType::hello: return read_hello(bytes, message);
    case MessageType::begin: return read_begin(bytes, message);
    case MessageType::paths: return read_paths(bytes, message);
    case MessageType::end: return read_end(bytes, message);
    case MessageType::bye: {
      ByeMessage bye;
      if (!get(bytes, bye)) return k_cut_off;
      return bye.zero == 0 ? nullptr : k_unknown;
    }
    default: return "a message is of no known type";
  }
}

}  // namespace cube::prefetch
