#include "prefetch/order/announced/announcements.h"

#include <fmt/core.h>

#include <cerrno>
#include <cstring>
#include <new>

#include "cache/base/clock.h"
#include "cache/base/error_text.h"
#include "cache/base/log.h"
#include "prefetch/order/announced/announcement_server.h"

namespace cube::prefetch {
namespace {

using State = AnnouncementServer::State;

// Waits while the state is `from`, but no longer than `at_most_ms`, and returns the state.
State wait_while(AnnouncementServer& server, State from, unsigned at_most_ms) {
  server.changed.wait_until([&] { return server.state.load(std::memory_order_acquire) != from; },
                            at_most_ms * base::k_ns_per_ms);
  return server.state.load(std::memory_order_acquire);
}

}  // namespace

std::unique_ptr<Announcements> Announcements::start(AnnouncementsOptions options,
                                                    std::string& why) {
  const std::string socket = options.socket;
  const auto refuse = [&](std::string_view reason) {
    why = fmt::format("announcements are not accepted at {}: {}", socket, reason);
    return nullptr;
  };
  CrewPtr<AnnouncementServer> own(new AnnouncementServer(std::move(options)));
  AnnouncementServer& server = *own;
  if (const int error = server.start(); error != 0) return refuse(base::text_of_error(error));
  std::unique_ptr<Announcements> announcements(new Announcements(std::move(own)));
  const State state = wait_while(server, State::starting, 10'000);
  if (state == State::starting) return refuse("its thread does not run");
  if (state == State::ended) return refuse(server.why);
  return announcements;
}

Announcements::Announcements(CrewPtr<AnnouncementServer> server)
    : server_(std::move(server)), pid_(base::sys::getpid()) {}

Announcements::~Announcements() {
  if (base::sys::getpid() != pid_) return;
  try {
    end();
  } catch (...) {
    // There is no memory for the log line.
    return;
  }
}

void Announcements::stop_listening() {
  server_->begin_stop();
  if (server_->state.load(std::memory_order_acquire) != State::listening) return;
  // Comes first, while the socket still has the name by which knock() finds it.
  knock(server_->options.socket);
  server_->remove_name();
}

void Announcements::leave_name() { server_->leaves_name.store(true, std::memory_order_release); }

void Announcements::end() {
  // Comes before the gate closes. Inside the gate, a thread that has not begun to listen checks
  // which process leads; after the stop has begun, it must not begin to listen.
  server_->begin_stop();
  server_->gate.close();
  stop_listening();
  // If the thread is still running after this wait, it ends later and makes no callbacks.
  wait_while(*server_, State::listening, 15);
  for (const auto& line : server_->take_lines()) base::log(base::LogLevel::warn, "{}", line);
}

PathSource::Next Announcements::next(PlannedFile& file) {
  for (const auto& line : server_->take_lines()) base::log(base::LogLevel::warn, "{}", line);
  if (server_->orders.next(file)) return Next::file;
  for (const auto& line : server_->orders.take_refusals())
    base::log(base::LogLevel::warn, "{}", line);
  return Next::none_yet;
}

void Announcements::settled(std::uint32_t reader, std::uint32_t files) {
  server_->orders.settled(reader, files);
}

void Announcements::refuse(Refusal reason, const std::string& path) {
  server_->orders.refuse(reason, path);
}

std::optional<std::uint32_t> Announcements::next_reader() const {
  return server_->orders.next_reader();
}
std::uint64_t Announcements::passed(std::uint32_t reader) { return server_->orders.passed(reader); }

}  // namespace cube::prefetch
