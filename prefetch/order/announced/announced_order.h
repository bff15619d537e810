// The announced paths of one client of the socket that have not been taken yet, in order. The class
// enforces the order of messages. Its size is bounded: the feeder must stop when is_full() is true.
// Thread safety: one thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

#include "prefetch/order/announced/announce_message.h"

namespace cube::prefetch {

class AnnouncedOrder {
 public:
  // Adds the content of a message and returns null. If the client must be dropped, returns the
  // reason and changes nothing.
  const char* take(std::string_view bytes);

  // True if one more message could exceed k_most_bytes.
  bool is_full() const { return bytes_ + k_longest_message > k_most_bytes; }
  bool is_empty() const { return blocks_.empty(); }
  // How often the client has left an epoch, by beginning the next epoch or by withdrawing its
  // paths.
  std::uint64_t epochs_left() const { return epochs_left_; }
  bool said_hello() const { return said_hello_; }
  bool said_bye() const { return said_bye_; }
  // The base directory, normalised; empty for the root, or if there is none (see has_base()).
  const std::string& base() const { return base_; }
  bool has_base() const { return has_base_; }
  std::uint32_t rank() const { return rank_; }

  // Removes the next path and returns it as it was announced. The order must not be empty. The
  // result is valid until the next call of any member.
  std::string_view next();

  // news() is the message that tells the client how many of its paths have been handed on. told()
  // notes that the message was sent.
  bool has_news() const { return has_news_; }
  TakenMessage news() const;
  void told() { has_news_ = false; }

 private:
  static constexpr std::size_t k_most_bytes = 512 << 10;
  struct Block {
    std::uint64_t first;  // sequence number of the path at `at`
    std::size_t at;
    std::string paths;
  };

  const char* begin(const ClientMessage& message);
  const char* add(const ClientMessage& message);
  const char* end(const ClientMessage& message);
  void drop_all();

  std::deque<Block> blocks_;
  std::string base_, path_;
  std::size_t bytes_ = 0;
  std::uint64_t epochs_left_ = 0, epoch_ = 0, expected_ = 0, taken_ = 0;
  std::uint32_t rank_ = 0;
  bool said_hello_ = false, said_bye_ = false, has_begun_ = false, is_open_ = false,
       has_news_ = false, has_base_ = false;
};

}  // namespace cube::prefetch
