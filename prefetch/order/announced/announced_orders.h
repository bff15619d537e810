// The orders that the clients of the socket have announced. next() selects a path of the client
// whose paths are least ahead of its reads, and alternates among equal clients. So all ranks are
// served equally, and a stalled rank does not hold up others. Thread-safe: one thread may feed
// while another takes.
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

  // The following functions are for the thread that feeds. A slot is an index below k_clients.
  bool add(std::size_t slot);
  // Like AnnouncedOrder::take.
  const char* take(std::size_t slot, std::string_view message);
  // Called when the client has disconnected. If it said goodbye, its paths are still handed on;
  // otherwise they are dropped.
  void remove(std::size_t slot);
  struct AnnouncedState {
    bool said_hello = false, is_full = false, has_paths = false, has_news = false;
    std::uint32_t rank = 0;
    TakenMessage news;
  };
  AnnouncedState state(std::size_t slot) const;
  void told(std::size_t slot, const TakenMessage& news);
  // Returns true if a path has arrived since next() found nothing. Returns true only once for each
  // such event.
  bool has_become_ready();

  // The following functions are for the thread that takes.
  bool next(PlannedFile& file);
  // The reader of the file that next() would return; empty if there is no such file.
  std::optional<std::uint32_t> next_reader() const;
  void settled(std::uint32_t reader, std::uint32_t files);
  // The reader will read no path whose sequence number is below this one, because it has left the
  // epoch of these paths or was killed.
  std::uint64_t passed(std::uint32_t reader) const;
  void refuse(Refusal reason, const std::string& path);
  // Returns one line for each new reason for which paths were left out.
  std::vector<std::string> take_refusals();

 private:
  struct Client {
    AnnouncedOrder order;
    std::uint32_t reader = 0;
    // `given` is never reset, because sequence numbers keep growing from one epoch to the next.
    std::uint64_t ahead = 0, given = 0;
    std::uint64_t passed = 0;  // how many of `given` precede the current epoch
    bool has_gone = false;
  };

  std::optional<std::size_t> slot_of_least_ahead() const;
  Client* least_ahead();
  bool accept(Client& client, PlannedFile& file);

  const std::vector<std::string> prefixes_;
  mutable base::Mutex mutex_;
  std::array<std::unique_ptr<Client>, k_clients> clients_;
  // How often each slot was used, so that a reader's number is not reused soon.
  std::array<std::uint32_t, k_clients> uses_{};
  // For each slot, the last reader that left without a goodbye.
  std::array<std::uint32_t, k_clients> killed_{};
  std::size_t last_ = 0;  // the slot that was served last
  Refusals refusals_;
  std::array<bool, k_refusals> is_refusal_told_{};
  bool is_waiting_ = true;
};

}  // namespace cube::prefetch
