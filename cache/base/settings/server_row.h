// A server of the cluster as this node knows it: a row in the region, by its place in
// CUBESHIM_CLUSTER. The process that leads writes all but `free_ns`. A reader may see a part of its
// last words, which does for a report. Thread safety: all of it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace cube::base {

inline constexpr std::uint32_t k_server_rows = 64;

// Times are of base::monotonic_ns.
struct ServerRow {
  static constexpr std::size_t k_name_words = 15;
  std::atomic<std::uint64_t> free_ns;  // when it may be sent more; by all processes that offer
  std::atomic<std::uint64_t> capacity, used, entries;  // as it has said itself
  std::atomic<std::uint64_t> answered_ns;              // its last answer; 0: none yet
  std::atomic<std::uint64_t> rests_until_ns, no_offers_until_ns;
  std::atomic<std::uint64_t>
      told_ns;  // when the leader has written the row; 0: there is no such server
  std::atomic<std::uint32_t> has_address;  // else it is left out
  std::atomic<std::uint32_t> is_full;      // it has refused the last record for want of room
  std::atomic<std::uint64_t> name[k_name_words];

  // A longer one is cut.
  void set_name(std::string_view text) {
    char bytes[8 * k_name_words] = {};
    std::memcpy(bytes, text.data(), std::min(text.size(), sizeof bytes - 1));
    for (std::size_t i = 0; i < k_name_words; ++i) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes + 8 * i, sizeof word);
      name[i].store(word, std::memory_order_relaxed);
    }
  }
  std::string name_text() const {
    char bytes[8 * k_name_words + 1] = {};
    for (std::size_t i = 0; i < k_name_words; ++i) {
      const std::uint64_t word = name[i].load(std::memory_order_relaxed);
      std::memcpy(bytes + 8 * i, &word, sizeof word);
    }
    return bytes;
  }
};

}  // namespace cube::base
