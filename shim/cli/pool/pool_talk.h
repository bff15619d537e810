// A connection to a memcached. Each question has a deadline. After a missed deadline or any other
// error, the connection is unusable. Thread safety: one thread.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "cache/base/unique_fd.h"
#include "cache/tier/cluster/server_address.h"

namespace cube::cli {

// Looks up the address of a server of CUBESHIM_CLUSTER in the same way as the library. On failure,
// returns nothing and sets `why`.
std::optional<cache::ServerAddress> look_up_server(const std::string& name,
                                                   std::chrono::steady_clock::time_point end,
                                                   std::string& why);

class PoolTalk {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t k_longest_value = 1 << 20;

  // Connects, and sends `login` ("USER PASSWORD") if it is not empty. On failure, returns false,
  // and trouble() gives the reason.
  bool open(const cache::ServerAddress& address, std::string_view login, Clock::time_point end);
  bool is_open() const { return static_cast<bool>(fd_); }
  void close() { fd_.reset(); }
  const std::string& trouble() const { return trouble_; }

  // Sends the parts in order, as one command.
  bool send(std::span<const std::string_view> parts, Clock::time_point end);
  // Reads a line and removes the line end. Returns false if no line comes in time.
  bool read_line(std::string& line, Clock::time_point end);
  // Reads `size` bytes and the line end that follows.
  bool read_value(std::size_t size, std::string& value, Clock::time_point end);
  // Sends a question and reads an answer, one line each.
  bool ask(std::string_view question, std::string& line, Clock::time_point end);
  // Returns the STAT lines of the answer. Returns nothing if no answer comes in time, or if the
  // answer is an error.
  std::optional<std::map<std::string, std::string>> figures(std::string_view question,
                                                            Clock::time_point end);

 private:
  bool fail(std::string why);
  bool read_more(Clock::time_point end);

  base::UniqueFd fd_;
  std::string in_, trouble_;
};

}  // namespace cube::cli
