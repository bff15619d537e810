// Reads and writes the words of a row of the mailbox. One word contains the state, the asker and
// the number of the request. Another word contains the kind of the query and the lengths of its
// texts. The texts themselves follow. Only the sources of Mailbox use this header.
#pragma once

#include <array>
#include <string_view>

#include "cache/region/life/process_slots.h"
#include "cache/region/mailbox/mailbox.h"

namespace cube::cache::mail {

enum class MailState : std::uint64_t { free = 0, writing = 1, posted = 2, taken = 3, done = 4 };

// The fields of MailRow::word.
inline constexpr std::uint64_t k_number_mask = 0xffffff;
inline constexpr unsigned k_asker_at = 24, k_error_at = 48, k_state_at = 60;
inline constexpr std::uint64_t k_asker_mask = 0xffffffULL << k_asker_at, k_error_mask = 0xfff;
inline constexpr std::uint64_t k_request_mask = k_asker_mask | k_number_mask;

inline MailState state_of(std::uint64_t word) { return static_cast<MailState>(word >> k_state_at); }
inline int error_of(std::uint64_t word) {
  return static_cast<int>(word >> k_error_at & k_error_mask);
}
inline std::uint64_t with_state(std::uint64_t word, MailState state, int error = 0) {
  return (word & k_request_mask) | static_cast<std::uint64_t>(state) << k_state_at |
         (static_cast<std::uint64_t>(error) & k_error_mask) << k_error_at;
}
// The bits that identify the asker.
inline std::uint64_t asker_bits(const Region& region, std::uint32_t process) {
  return std::uint64_t{process_word(region, process)} << k_asker_at;
}
inline std::uint64_t gateway_word(const Region& region, std::uint32_t process) {
  const std::uint64_t generation =
      region.process_slot(process).generation.load(std::memory_order_relaxed);
  return generation << 32 | (process + 1);
}
// `word`: a word as gateway_word returns it.
inline bool gateway_is_alive(Region& region, std::uint64_t word) {
  const std::uint32_t slot = static_cast<std::uint32_t>(word) - 1;
  return word != 0 && slot < region.layout().process_slots && gateway_word(region, slot) == word &&
         process_is_alive(region, slot);
}

using PartWords = std::array<std::uint64_t, MailRow::k_part_words>;

// The fields of MailRow::head.
struct Lengths {
  std::uint16_t prefix = 0, url = 0, below = 0;
  std::size_t sum() const { return std::size_t{prefix} + url + below; }
};
inline std::uint64_t head_of(const MailQuery& query) {
  return static_cast<std::uint64_t>(query.kind) << 56 | std::uint64_t{query.is_prefetch} << 48 |
         static_cast<std::uint64_t>(query.prefix.size()) << 32 |
         static_cast<std::uint64_t>(query.url.size()) << 16 | query.below.size();
}
inline Lengths lengths_of(std::uint64_t head) {
  return {static_cast<std::uint16_t>(head >> 32), static_cast<std::uint16_t>(head >> 16),
          static_cast<std::uint16_t>(head)};
}

// Writes texts one after another, as words. The words are atomic, because another process may be
// reading the row of an earlier request. The reader detects this by MailRow::word.
class TextWriter {
 public:
  explicit TextWriter(std::atomic<std::uint64_t>* words) : words_(words) {}
  void add(std::string_view text) {
    for (const char c : text) {
      word_ |= static_cast<std::uint64_t>(static_cast<unsigned char>(c)) << 8 * (at_ % 8);
      if (++at_ % 8 == 0) put();
    }
  }
  // Fills the rest of the words with zeros.
  void end(std::size_t words) {
    for (; at_ < words * 8; at_ = (at_ / 8 + 1) * 8) {
      words_[at_ / 8].store(word_, std::memory_order_relaxed);
      word_ = 0;
    }
  }

 private:
  void put() {
    words_[at_ / 8 - 1].store(word_, std::memory_order_relaxed);
    word_ = 0;
  }
  std::atomic<std::uint64_t>* words_;
  std::uint64_t word_ = 0;
  std::size_t at_ = 0;
};

inline void read_text(const std::atomic<std::uint64_t>* words, std::size_t at, std::size_t length,
                      char* to) {
  for (std::size_t i = 0; i < length; ++i)
    to[i] = static_cast<char>(words[(at + i) / 8].load(std::memory_order_relaxed) >>
                              8 * ((at + i) % 8));
}

}  // namespace cube::cache::mail
