#include "cache/tier/cluster/dns/dns_message.h"

#include <algorithm>
#include <cstring>

namespace cube::cache {
namespace {

constexpr std::size_t k_head = 12, k_longest_name = 253, k_longest_label = 63;
constexpr std::uint16_t k_internet = 1, k_recursion_wanted = 0x0100, k_is_answer = 0x8000,
                        k_opcode = 0x7800, k_is_cut = 0x0200, k_code = 0x000f;
constexpr unsigned k_no_name = 3;

// Reads bytes. After an attempt to read beyond the end, is_sound() is false.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  bool is_sound() const { return is_sound_; }
  std::span<const std::byte> take(std::size_t n) {
    if (n > bytes_.size()) is_sound_ = false;
    if (!is_sound_) return {};
    const auto taken = bytes_.first(n);
    bytes_ = bytes_.subspan(n);
    return taken;
  }
  std::uint16_t number() {
    const auto two = take(2);
    return two.empty() ? 0
                       : static_cast<std::uint16_t>(std::to_integer<unsigned>(two[0]) << 8 |
                                                    std::to_integer<unsigned>(two[1]));
  }
  // Skips a name. A name ends with a zero length, or with a pointer to the rest of the name.
  void pass_name() {
    while (is_sound_) {
      const auto length = take(1);
      if (length.empty() || length[0] == std::byte{0}) return;
      const auto n = std::to_integer<std::size_t>(length[0]);
      if ((n & 0xc0) == 0xc0) {
        take(1);
        return;
      }
      if (n > k_longest_label) is_sound_ = false;
      take(n);
    }
  }

 private:
  std::span<const std::byte> bytes_;
  bool is_sound_ = true;
};

char lower(std::byte b) {
  const auto c = std::to_integer<char>(b);
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool is_smaller(const ServerAddress& a, const ServerAddress& b) {
  if (a.family() == AF_INET)
    return std::memcmp(&a.v4.sin_addr, &b.v4.sin_addr, sizeof a.v4.sin_addr) < 0;
  return std::memcmp(&a.v6.sin6_addr, &b.v6.sin6_addr, sizeof a.v6.sin6_addr) < 0;
}

}  // namespace

std::size_t write_dns_question(std::string_view name, DnsType type, std::uint16_t id,
                               std::span<std::byte, k_most_dns_bytes> to) {
  if (name.ends_with('.')) name.remove_suffix(1);
  if (name.empty() || name.size() > k_longest_name) return 0;
  std::size_t size = 0;
  const auto put = [&](unsigned number, bool is_byte = false) {
    if (!is_byte) to[size++] = static_cast<std::byte>(number >> 8);
    to[size++] = static_cast<std::byte>(number & 0xff);
  };
  for (const unsigned number : {unsigned{id}, unsigned{k_recursion_wanted}, 1U, 0U, 0U, 0U})
    put(number);
  while (true) {
    const std::string_view label = name.substr(0, name.find('.'));
    if (label.empty() || label.size() > k_longest_label) return 0;
    put(static_cast<unsigned>(label.size()), /*is_byte=*/true);
    for (const char c : label) put(static_cast<unsigned char>(c), /*is_byte=*/true);
    if (label.size() == name.size()) break;
    name.remove_prefix(label.size() + 1);
  }
  put(0, /*is_byte=*/true);
  put(static_cast<unsigned>(type));
  put(k_internet);
  return size;
}

DnsAnswer parse_dns_answer(std::span<const std::byte> bytes, std::string_view name, DnsType type,
                           std::uint16_t id) {
  std::byte question[k_most_dns_bytes];
  const std::size_t asked = write_dns_question(name, type, id, question);
  DnsAnswer answer;
  if (asked == 0 || bytes.size() < asked) return answer;
  Reader reader(bytes);
  const std::uint16_t its_id = reader.number(), flags = reader.number(),
                      questions = reader.number(), answers = reader.number();
  reader.take(4);
  const auto its_question = reader.take(asked - k_head);
  const bool is_same =
      std::equal(its_question.begin(), its_question.end(), question + k_head, question + asked,
                 [](std::byte a, std::byte b) { return lower(a) == lower(b); });
  if (its_id != id || (flags & k_is_answer) == 0 || (flags & k_opcode) != 0 || questions != 1 ||
      !is_same)
    return answer;
  answer.kind = DnsAnswer::Kind::failed;
  if ((flags & k_code) == k_no_name) answer.kind = DnsAnswer::Kind::no_name;
  if ((flags & k_code) != 0) return answer;
  bool has_address = false;
  for (unsigned i = 0; i < answers && reader.is_sound(); ++i) {
    reader.pass_name();
    const std::uint16_t its_type = reader.number(), its_class = reader.number();
    reader.take(4);
    const auto data = reader.take(reader.number());
    ServerAddress found;
    const bool is_v4 = type == DnsType::v4;
    const std::size_t needed = is_v4 ? sizeof found.v4.sin_addr : sizeof found.v6.sin6_addr;
    if (!reader.is_sound() || its_type != static_cast<std::uint16_t>(type) ||
        its_class != k_internet || data.size() != needed)
      continue;
    if (is_v4) {
      found.v4.sin_family = AF_INET;
      found.bytes = sizeof found.v4;
      std::memcpy(&found.v4.sin_addr, data.data(), needed);
    } else {
      found.v6.sin6_family = AF_INET6;
      found.bytes = sizeof found.v6;
      std::memcpy(&found.v6.sin6_addr, data.data(), needed);
    }
    if (!has_address || is_smaller(found, answer.address)) answer.address = found;
    has_address = true;
  }
  // An address from a truncated answer is good enough.
  if (has_address) {
    answer.kind = DnsAnswer::Kind::address;
  } else if ((flags & k_is_cut) == 0 && reader.is_sound()) {
    answer.kind = DnsAnswer::Kind::none;
  }
  return answer;
}

}  // namespace cube::cache
