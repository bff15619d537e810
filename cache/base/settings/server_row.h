// The state of a server of the cluster, as this node knows it: a row of a table in the region. The
// rows have the order of CUBESHIM_CLUSTER. The leader writes all fields except `free_ns`. A reader
// can see a row that is only partly updated, which is good enough for a report. Thread-safe.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace cube::base {

inline constexpr std::uint32_t k_server_rows = 64;

// All times are times of base::monotonic_ns.
struct ServerRow {
  static constexpr std::size_t k_name_words = 15;
  std::atomic<std::uint64_t>
      free_ns;  // the time at which more may be sent; written by all processes that offer records
  std::atomic<std::uint64_t> capacity, used, entries;  // figures that the server reports
  std::atomic<std::uint64_t> answered_ns;              // its last answer; 0: none yet
  std::atomic<std::uint64_t> rests_until_ns, no_offers_until_ns;
  std::atomic<std::uint64_t>
      told_ns;  // the time at which the leader last wrote the row; 0: there is no such server
  std::atomic<std::uint32_t> has_address;  // 0: the server is not used
  std::atomic<std::uint32_t> is_full;      // the server refused the last record for lack of room
  std::atomic<std::uint64_t> name[k_name_words];

  // Stores the name. A name that is too long is cut.
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
