// The thread that listens for announcements, and the state that it shares with the thread that
// takes announcements. Thread safety: both threads may use the public members.
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
#include "prefetch/threads/starter_traits.h"
#include "prefetch/threads/thread_crew.h"

namespace cube::prefetch {

class AnnouncementServer final : public ThreadCrew {
 public:
  explicit AnnouncementServer(AnnouncementsOptions given)
      : ThreadCrew({.stack = 64 << 10}), options(std::move(given)), orders(options.prefixes) {}

  // Returns 0 or an errno.
  int start() { return start_thread(may_change_traits()); }
  // Returns log lines that the listening thread cannot write itself, because it has no stderr.
  std::vector<std::string> take_lines();
  // Removes the socket's name. Callable by any thread, while the server listens or later.
  void remove_name();

  const AnnouncementsOptions options;
  AnnouncedOrders orders;
  CallbackGate gate;  // guards the calls of arrived() and leads()

  enum class State { starting, listening, ended };
  // Released after `why`, `device` and `inode` are written; acquired by start().
  std::atomic<State> state{State::starting};
  std::atomic<bool> leaves_name{false};
  EventCount changed;  // of `state`
  std::string why;
  std::uint64_t device = 0, inode = 0;

 private:
  // The fds belong to the listening thread's own fd table, so they exist only during run().
  struct Peers {
    base::UniqueFd listener;
    std::array<base::UniqueFd, AnnouncedOrders::k_clients> fds;
    std::size_t next = 0;  // the slot to try first for the next visitor
    // True if there was no fd or no memory for a visitor. No further visitor is accepted before the
    // next tick.
    bool is_refusing = false;
  };
  struct Events {
    std::array<short, AnnouncedOrders::k_clients> of{};
    bool has_visitor = false;
  };

  void work(unsigned) override;
  void work_without_table(int error) override;
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
