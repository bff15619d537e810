// The thread that listens for announcements, and what it shares with who takes them.
// Thread safety: run() is the thread's; the members that are named here are for both sides.
#pragma once

#include <array>
#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "cache/base/mutex.h"
#include "prefetch/order/announced/announce_socket.h"
#include "prefetch/order/announced/announced_orders.h"
#include "prefetch/order/announced/announcements.h"
#include "prefetch/threads/callback_gate.h"
#include "prefetch/threads/event_count.h"

namespace cube::prefetch {

class AnnouncementServer {
 public:
  explicit AnnouncementServer(AnnouncementsOptions given)
      : options(std::move(given)), orders(options.prefixes) {}

  void run();
  // Lines that the thread cannot write itself.
  std::vector<std::string> take_lines();
  // By any thread, while it listens or after.
  void remove_name();

  const AnnouncementsOptions options;
  AnnouncedOrders orders;
  CallbackGate gate;  // around arrived() and leads()

  enum class State { starting, listening, ended };
  std::atomic<State> state{
      State::starting};  // released after `why` and the file's numbers, acquired by start()
  std::atomic<bool> is_stopping{false};
  std::atomic<bool> leaves_name{false};
  EventCount changed;  // of `state`
  std::string why;
  std::uint64_t device = 0, inode = 0;

 private:
  // The numbers are of the thread's own fd table, so they live and die in run().
  struct Peers {
    base::UniqueFd listener;
    std::array<base::UniqueFd, AnnouncedOrders::k_clients> fds;
    std::size_t next = 0;  // the slot that a visitor is offered first
    bool is_refusing =
        false;  // there was no fd or memory for a visitor: not asked again before a tick
  };
  struct Events {
    std::array<short, AnnouncedOrders::k_clients> of{};
    bool has_visitor = false;
  };

  bool open(Peers& peers);
  bool leads();
  void serve(Peers& peers);
  Events wait(Peers& peers, std::uint64_t tick_ns);
  bool tell_taken(Peers& peers);
  void welcome(Peers& peers);
  bool admit(Peers& peers, base::UniqueFd& fd);
  void listen_to(Peers& peers, std::size_t slot, bool has_hung_up);
  void drop(Peers& peers, std::size_t slot, const char* why);
  void say(std::string line);
  void set(State to);

  std::array<char, k_longest_message> buffer_;
  base::Mutex mutex_;
  std::vector<std::string> lines_;  // guarded by mutex_
  unsigned said_ = 0;
};

}  // namespace cube::prefetch
