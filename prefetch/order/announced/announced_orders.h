// The orders that the clients of the socket have announced, from which one is taken after the
// other: that of the client who is least ahead of his reading, in turn among equals, so that all
// ranks are served alike and one that stands still holds up nobody. Thread safety: all of it; what
// is fed and what is taken may be two threads.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cache/base/mutex.h"
#include "prefetch/order/announced/announced_order.h"
#include "prefetch/order/path_source.h"
#include "prefetch/order/refusals.h"

namespace cube::prefetch {

class AnnouncedOrders {
 public:
  static constexpr std::size_t k_clients = 64;

  explicit AnnouncedOrders(std::vector<std::string> prefixes) : prefixes_(std::move(prefixes)) {}

  // The side of the clients. A slot is an index below k_clients.
  bool add(std::size_t slot);
  const char* take(std::size_t slot, std::string_view message);  // as AnnouncedOrder
  // The client has gone: what it said goodbye to is still handed on, all else is dropped.
  void remove(std::size_t slot);
  struct AnnouncedState {
    bool said_hello = false, is_full = false, has_paths = false, has_news = false;
    std::uint32_t rank = 0;
    TakenMessage news;
  };
  AnnouncedState state(std::size_t slot) const;
  void told(std::size_t slot, const TakenMessage& news);
  // Whether next() has said that there is nothing, and now there is; then not again until it says
  // so again.
  bool has_become_ready();

  // The side of the fetching.
  bool next(PlannedFile& file);
  // The reader of that file.
  std::optional<std::uint32_t> next_reader() const;
  void settled(std::uint32_t reader, std::uint32_t files);
  // Paths that a client has left behind with an epoch are not wanted any more, nor are those of a
  // client that was killed.
  std::uint64_t passed(std::uint32_t reader) const;
  void refuse(Refusal reason, const std::string& path);
  // A line for each reason for which paths were left out, each once.
  std::vector<std::string> take_refusals();

 private:
  struct Client {
    AnnouncedOrder order;
    std::uint32_t reader = 0;
    std::uint64_t ahead = 0,
                  given = 0;   // given: never reset, for sequence numbers grow over epochs
    std::uint64_t passed = 0;  // of given: before the epoch that is open
    bool has_gone = false;
  };

  std::optional<std::size_t> slot_of_least_ahead() const;
  Client* least_ahead();
  bool accept(Client& client, PlannedFile& file);

  const std::vector<std::string> prefixes_;
  mutable base::Mutex mutex_;
  std::array<std::unique_ptr<Client>, k_clients> clients_;
  std::array<std::uint32_t, k_clients>
      uses_{};  // of a slot, so that the number of a reader does not come again soon
  std::array<std::uint32_t, k_clients>
      killed_{};          // of a slot, the last reader that went without goodbye
  std::size_t last_ = 0;  // the slot that was served last
  Refusals refusals_;
  std::array<bool, k_refusals> is_refusal_told_{};
  bool is_waiting_ = true;
};

}  // namespace cube::prefetch
