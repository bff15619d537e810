#include "prefetch/order/announced/announcement_server.h"

#include <fmt/core.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>

#include "cache/base/clock.h"
#include "cache/base/error_text.h"

namespace cube::prefetch {
namespace {

namespace sys = base::sys;

constexpr std::size_t k_clients = AnnouncedOrders::k_clients;
// The server notices only at its ticks that next() has taken paths, because neither thread can
// write to an fd of the other thread. The intervals between ticks grow while there is nothing to
// do, and are long while no client waits.
constexpr std::uint64_t k_first_tick = 20 * base::k_ns_per_ms,
                        k_last_tick = 160 * base::k_ns_per_ms;
// The longest interval between two checks for a stop. The check is needed because the stopping
// thread might have had no free fd for the connection that wakes the server.
constexpr std::uint64_t k_longest_rest = 1'000 * base::k_ns_per_ms;
constexpr unsigned k_most_lines = 8;
constexpr int k_messages_a_turn = 16;

}  // namespace

void AnnouncementServer::work(unsigned) {
  try {
    Peers peers;
    if (open(peers)) {
      set(State::listening);
      serve(peers);
      remove_name();
    }
  } catch (const std::exception& error) {
    why = error.what();
    say(fmt::format("announcements are no longer accepted: {}", error.what()));
  }
  for (std::size_t slot = 0; slot < k_clients; ++slot) orders.remove(slot);
  set(State::ended);
}

void AnnouncementServer::work_without_table(int error) {
  why = fmt::format("it can have no fd table of its own: {}", base::text_of_error(error));
  set(State::ended);
}

bool AnnouncementServer::open(Peers& peers) {
  // If this process was stopped before this thread ran, another process might already lead and
  // listen. This thread then leaves the name to that process.
  if (!leads() || is_stopping()) {
    why = "another process has taken the lead";
    return false;
  }
  auto socket = listen_at(options.socket, why);
  if (!socket) return false;
  peers.listener = std::move(socket->fd);
  device = socket->device;
  inode = socket->inode;
  return true;
}

bool AnnouncementServer::leads() {
  if (options.leads == nullptr || !gate.enter()) return true;
  const bool leads = options.leads(options.argument);
  gate.leave();
  return leads;
}

void AnnouncementServer::remove_name() {
  // Without the flag, this process could remove the next leader's name, because the check of the
  // name and its removal are two steps.
  if (!leaves_name.load(std::memory_order_acquire)) remove_socket(options.socket, device, inode);
}

void AnnouncementServer::serve(Peers& peers) {
  std::uint64_t tick = k_first_tick;
  while (!is_stopping()) {
    const Events events = wait(peers, tick);
    if (!leads()) leaves_name.store(true, std::memory_order_release);
    peers.is_refusing = false;
    bool has_heard = false;
    for (std::size_t slot = 0; slot < k_clients; ++slot) {
      if (events.of[slot] == 0) continue;
      has_heard = true;
      listen_to(peers, slot, (events.of[slot] & (POLLHUP | POLLERR)) != 0);
    }
    if (events.has_visitor) welcome(peers);
    const bool has_told = tell_taken(peers);
    tick = has_heard || has_told ? k_first_tick : std::min(2 * tick, k_last_tick);
    if (orders.has_become_ready() && options.arrived != nullptr && gate.enter()) {
      options.arrived(options.argument);
      gate.leave();
    }
  }
}

AnnouncementServer::Events AnnouncementServer::wait(Peers& peers, std::uint64_t tick_ns) {
  std::array<pollfd, k_clients + 1> fds;
  bool is_ticking = peers.is_refusing;
  // The listener is polled first, so that a new visitor is never handled before events that came
  // earlier.
  fds[0] = {peers.is_refusing ? -1 : peers.listener.get(), POLLIN, 0};
  for (std::size_t slot = 0; slot < k_clients; ++slot) {
    pollfd& fd = fds[slot + 1];
    fd = {peers.fds[slot].get(), 0, 0};  // poll() ignores -1
    if (!peers.fds[slot]) continue;
    const auto client = orders.state(slot);
    // If the client's order is full, further messages stay in the socket. When the socket is full,
    // the client waits.
    if (!client.is_full) fd.events = POLLIN;
    is_ticking |= client.has_paths || client.has_news;
  }
  const std::uint64_t rest_ns = is_ticking ? tick_ns : k_longest_rest;
  timespec at_most{static_cast<time_t>(rest_ns / 1'000'000'000),
                   static_cast<long>(rest_ns % 1'000'000'000)};
  Events events{};
  if (sys::poll(fds.data(), fds.size(), &at_most) <= 0) return events;
  events.has_visitor = fds[0].revents != 0;
  for (std::size_t slot = 0; slot < k_clients; ++slot) events.of[slot] = fds[slot + 1].revents;
  return events;
}

// Returns true if a message was sent.
bool AnnouncementServer::tell_taken(Peers& peers) {
  bool has_told = false;
  for (std::size_t slot = 0; slot < k_clients; ++slot) {
    if (!peers.fds[slot]) continue;
    const auto client = orders.state(slot);
    // A client that does not read its socket is sent only the latest state, at a later tick.
    if (!client.has_news || !send_message(peers.fds[slot].get(), &client.news, sizeof client.news))
      continue;
    orders.told(slot, client.news);
    has_told = true;
  }
  return has_told;
}

// Accepts one visitor at a time, so that the messages of earlier visitors are read before the next
// visitor is admitted.
void AnnouncementServer::welcome(Peers& peers) {
  const long got = sys::accept(peers.listener.get(), SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (got == -EAGAIN || got == -ECONNABORTED || got == -EINTR) return;
  if (sys::failed(got)) {
    peers.is_refusing = true;
    return;
  }
  base::UniqueFd fd(static_cast<int>(got));
  if (is_stopping()) return;
  if (!is_trusted_peer(fd.get())) {
    say("a client of announcements was refused: it belongs to another user");
  } else if (!admit(peers, fd)) {
    say(fmt::format("a client of announcements was refused: there are {} already", k_clients));
  }
}

bool AnnouncementServer::admit(Peers& peers, base::UniqueFd& fd) {
  const auto try_all = [&] {
    for (std::size_t i = 0; i < k_clients; ++i) {
      const std::size_t slot = (peers.next + i) % k_clients;
      if (peers.fds[slot] || !orders.add(slot)) continue;
      WelcomeMessage message;
      message.pid = static_cast<std::uint32_t>(sys::getpid());
      message.server = inode;
      // If the send fails, the client has already disconnected, and the next poll reports that.
      send_message(fd.get(), &message, sizeof message);
      peers.fds[slot] = std::move(fd);
      peers.next = slot + 1;
      return true;
    }
    return false;
  };
  if (try_all()) return true;
  for (std::size_t slot = 0; slot < k_clients; ++slot) {
    if (!peers.fds[slot] || orders.state(slot).said_hello) continue;
    drop(peers, slot, "it has sent nothing, and others are waiting");
    return try_all();
  }
  return false;
}

void AnnouncementServer::listen_to(Peers& peers, std::size_t slot, bool has_hung_up) {
  // If the client has disconnected, reads everything that is left: it fits into the socket's
  // buffer, and can end with a goodbye.
  bool was_reset = false;
  for (int i = 0; has_hung_up || (i < k_messages_a_turn && !orders.state(slot).is_full); ++i) {
    const long n = receive_message(peers.fds[slot].get(), buffer_.data(), buffer_.size());
    if (n == -EAGAIN && !has_hung_up) return;
    // A client that has left without reading all answers, perhaps only after the poll. The kernel
    // reports this once, before the client's last messages.
    if (n == -ECONNRESET && !was_reset) {
      was_reset = has_hung_up = true;
      continue;
    }
    if (sys::failed(n) || n == 0) return drop(peers, slot, nullptr);
    const std::string_view message(buffer_.data(),
                                   std::min(static_cast<std::size_t>(n), buffer_.size()));
    const char* const wrong = static_cast<std::size_t>(n) > buffer_.size()
                                  ? "a message is too long"
                                  : orders.take(slot, message);
    if (wrong != nullptr) return drop(peers, slot, wrong);
  }
}

// `why_dropped` is null if the client itself has disconnected.
void AnnouncementServer::drop(Peers& peers, std::size_t slot, const char* why_dropped) {
  if (why_dropped != nullptr) {
    say(fmt::format("a client of announcements was dropped (rank {}): {}", orders.state(slot).rank,
                    why_dropped));
  }
  orders.remove(slot);
  peers.fds[slot].reset();
}

void AnnouncementServer::say(std::string line) {
  if (said_ == k_most_lines) return;
  if (++said_ == k_most_lines) line += " (further ones are not reported)";
  const std::lock_guard lock(mutex_);
  lines_.push_back(std::move(line));
}

std::vector<std::string> AnnouncementServer::take_lines() {
  const std::lock_guard lock(mutex_);
  return std::exchange(lines_, {});
}

void AnnouncementServer::set(State to) {
  state.store(to, std::memory_order_release);
  changed.notify();
}

}  // namespace cube::prefetch
