#include "cache/tier/cluster/cluster_worker.h"

#include <sys/prctl.h>

#include <algorithm>
#include <charconv>

#include "cache/base/clock.h"
#include "cache/base/log.h"

namespace cube::cache {
namespace {

using base::Counter;

constexpr std::uint64_t k_second = 1'000'000'000;
constexpr std::uint64_t k_too_many_ns = 30 * k_second, k_no_figures_ns = 30 * k_second,
                        k_answer_patience_ns = 2 * k_second, k_token_pause_ns = 5'000'000,
                        k_idle_ns = 250'000'000;
// While the thread waits for a socket, it does not notice wake-ups. So if a new request may arrive,
// the thread waits only briefly.
constexpr long k_poll_ns = 100'000, k_slow_poll_ns = 1'000'000;
constexpr std::uint64_t k_slow_after_ns = 5'000'000;
// If opens wait for less than the whole deadline, the server rests only after this many late
// answers (a quarter of 64).
constexpr std::uint64_t k_most_late_of_short = 16;
// A buffer larger than this is freed after its request, and is not kept for smaller values.
constexpr std::size_t k_large_buffer = 2 << 20;

}  // namespace

ClusterClient::Worker::Worker(ClusterClient& client, OfferSource& source)
    : client_(client), source_(source), gate_(client.wakeup_) {
  for (std::size_t i = 0; i < client.options_.servers.size(); ++i) {
    auto server = std::make_unique<Server>();
    for (Lane* const lane : {&server->demand, &server->fill}) {
      lane->worker = this;
      lane->server = i;
      lane->is_fill = lane == &server->fill;
    }
    servers_.push_back(std::move(server));
  }
  polled_.reserve(3 * servers_.size());
  lanes_.reserve(2 * servers_.size());
}

ClusterClient::Worker::~Worker() {
  if (step_ != Step::none) end_offer(OfferEnd::put_off);
  for (std::size_t i = 0; i < servers_.size(); ++i)
    drop_requests(i, Outcome::skipped, /*also_queued=*/true);
}

void ClusterClient::Worker::run() {
  constexpr long k_timer_slack_ns = 10'000;
  base::sys::raw(SYS_prctl, PR_SET_TIMERSLACK, k_timer_slack_ns);
  now_ns_ = base::monotonic_ns();
  look_up_names(now_ns_);
  while (!client_.is_stopping_.load(std::memory_order_acquire)) {
    const std::uint32_t seen = client_.wakeup_.count();
    // Must precede the search for work, because a wake-up may arrive between the search and the
    // sleep.
    client_.wakeup_.set_dozes(source_.is_leader() && doze_ns_ > k_least_doze_ns);
    now_ns_ = base::monotonic_ns();
    const std::uint64_t began = now_ns_;
    look_up_names(began);
    send_queued(began);
    offer(began);
    ask_figures(began);
    tell_rows(began);
    const bool has_waited = wait(began);
    // Uses the time before the wait: an answer is not late if it was in the socket while this
    // thread had no processor.
    look_at_deadlines(began);
    look_at_lanes(began);
    if (!has_waited) sleep(seen);
  }
}

// Other processes of the node may publish records without a wake-up of the leader, which must offer
// them. So while there are new records, a leader sleeps only briefly.
void ClusterClient::Worker::sleep(std::uint32_t seen) {
  std::uint64_t pause = k_idle_ns;
  if (step_ == Step::waiting || step_ == Step::paying) {
    pause = k_token_pause_ns;
  } else if (!gate_.is_open(now_ns_)) {
    pause = gate_.opens_ns() - now_ns_;
  } else if (source_.is_leader()) {
    pause = doze_ns_;
    doze_ns_ = std::min(2 * doze_ns_, k_idle_ns);
  }
  client_.wakeup_.set_dozes(source_.is_leader() && pause > k_least_doze_ns);
  if (client_.wakeup_.sleep(seen, pause)) doze_ns_ = k_least_doze_ns;
}

// Opens the connection if it is closed. Returns whether commands may be sent.
bool ClusterClient::Worker::prepare(Lane& lane, std::uint64_t now) {
  Server& server = *servers_[lane.server];
  if (!server.has_address) return false;
  if (lane.connection.is_alive()) return lane.connection.is_ready();
  if (!lane.connection.complaint().empty()) {
    lane_broke(lane, now);
    return false;
  }
  if (!lane.connection.open(server.address, client_.options_.login, now)) lane_broke(lane, now);
  return false;
}

void ClusterClient::Worker::send(ClusterRequest& request, std::uint64_t now) {
  std::uint32_t queued = ClusterRequest::queued;
  request.sent_ns = now;
  if (!request.state.compare_exchange_strong(queued, ClusterRequest::sent,
                                             std::memory_order_acq_rel)) {
    request.sent_ns = 0;
    return;
  }
  const auto tag = static_cast<Tag>(&request - client_.requests_);
  const bool is_get = request.ask == ClusterRequest::Ask::get;
  ClusterConnection& connection = servers_[request.server]->demand.connection;
  const std::uint64_t token = connection.next_token(tag);
  connection.send(tag, is_get ? MetaCommand::get(request.key.text(), token, request.lease_seconds)
                              : MetaCommand::remove(request.key.text(), token, request.cas));
}

void ClusterClient::Worker::send_queued(std::uint64_t now) {
  has_demand_ = false;
  unsigned awaited = 0;
  awaited_until_ns_ = UINT64_MAX;
  for (ClusterRequest& request : client_.requests_) {
    const std::uint32_t state_now = request.state.load(std::memory_order_acquire);
    if (state_now == ClusterRequest::sent && !request.is_ahead) has_demand_ = true;
    const bool is_awaited =
        state_now == ClusterRequest::sent || state_now == ClusterRequest::queued;
    if (is_awaited && request.ask == ClusterRequest::Ask::get) {
      ++awaited;
      awaited_until_ns_ = std::min(awaited_until_ns_, request.deadline_ns);
    }
    // The asker has left the request by a jump, before its deadline. So the request says nothing
    // about the server.
    if (state_now == ClusterRequest::left && request.sent_ns == 0 && now < request.deadline_ns)
      finish(request, Outcome::skipped);
    if (state_now != ClusterRequest::queued) continue;
    Server& server = *servers_[request.server];
    const bool may_ask =
        server.has_address && (request.is_admitted || state(request.server).breaker.may_ask(now));
    if (!may_ask) {
      finish(request, Outcome::skipped);
      continue;
    }
    request.is_admitted = true;
    has_demand_ |= !request.is_ahead;
    if (prepare(server.demand, now) && server.demand.connection.has_room()) send(request, now);
  }
  askers_.note(awaited);
}

void ClusterClient::Worker::finish(ClusterRequest& request, Outcome outcome) {
  // If an answer or a rest has already ended the trial, give_up_trial() does nothing. During a
  // trial, only this request was admitted.
  if (std::exchange(request.is_admitted, false)) state(request.server).breaker.give_up_trial();
  ClusterClient::finish(request, outcome);
}

void ClusterClient::Worker::drop_requests(std::size_t server, Outcome outcome, bool also_queued) {
  for (ClusterRequest& request : client_.requests_) {
    const std::uint32_t now_is = request.state.load(std::memory_order_acquire);
    const bool is_under_way = now_is == ClusterRequest::sent || now_is == ClusterRequest::left;
    if (!is_under_way && !(also_queued && now_is == ClusterRequest::queued)) continue;
    if (request.server == server) finish(request, outcome);
  }
}

void ClusterClient::Worker::rest(std::size_t server, std::uint64_t now, std::uint64_t at_least_ns) {
  state(server).breaker.rest(now, at_least_ns);
  // Looks up the server's name again, because its address may have changed.
  if (!servers_[server]->is_asked_for) servers_[server]->next_look_ns = now;
  client_.options_.stats->count(Counter::cluster_trips);
  servers_[server]->demand.connection.close();
  drop_requests(server, Outcome::late, /*also_queued=*/true);
}

void ClusterClient::Worker::lane_broke(Lane& lane, std::uint64_t now) {
  const std::string_view complaint = lane.connection.complaint();
  const bool are_too_many = complaint.find("Too many open connections") != std::string_view::npos;
  const bool was_refused = complaint.find("unauthenticated") != std::string_view::npos ||
                           complaint.find("authentication failure") != std::string_view::npos;
  const std::string& name = client_.options_.servers[lane.server];
  if (are_too_many) {
    base::log(
        base::LogLevel::warn,
        "CUBESHIM_CLUSTER: {} has too many connections (memcached -c); it is not asked for 30 s",
        name);
  } else if (was_refused) {
    base::log(base::LogLevel::warn,
              "CUBESHIM_CLUSTER: {} refuses the login (CUBESHIM_CLUSTER_LOGIN_FILE)", name);
  } else {
    base::log(base::LogLevel::info, "the connection to {} has ended: {}", name, complaint);
  }
  lane.connection.close();
  if (lane.is_fill) {
    // The request for figures may have caused the error. Makes no such request for a while, because
    // records are more important.
    servers_[lane.server]->next_figures_ns = now + k_no_figures_ns;
    if (is_offer_sent() && offer_server_ == lane.server) end_offer(OfferEnd::put_off);
    // Keeps a longer pause that the last answer may have caused.
    std::atomic<std::uint64_t>& until = state(lane.server).no_offers_until_ns;
    const std::uint64_t before = until.load(std::memory_order_relaxed);
    until.store(std::max(before, now + (are_too_many ? k_too_many_ns : k_second)),
                std::memory_order_relaxed);
  } else {
    rest(lane.server, now, are_too_many || was_refused ? k_too_many_ns : 0);
  }
}

// The number of late answers after which the server rests. The number is higher if the origin is
// fast, because opens then wait for less than the whole deadline. On a busy machine some answers
// take 2 ms, and a rest of a second would cost far more than these.
int ClusterClient::Worker::most_late(const ClusterRequest& request) const {
  const std::uint64_t waited = std::max<std::uint64_t>(
      request.deadline_ns - std::min(request.deadline_ns, request.sent_ns), 1);
  return static_cast<int>(
      std::clamp<std::uint64_t>(CircuitBreaker::k_most_late * client_.options_.deadline_ns / waited,
                                CircuitBreaker::k_most_late, k_most_late_of_short));
}

void ClusterClient::Worker::look_at_deadlines(std::uint64_t now) {
  for (ClusterRequest& request : client_.requests_) {
    const std::uint32_t now_is = request.state.load(std::memory_order_acquire);
    const bool is_under_way = now_is == ClusterRequest::queued || now_is == ClusterRequest::sent ||
                              now_is == ClusterRequest::left;
    if (!is_under_way || now < request.deadline_ns) continue;
    const std::size_t server = request.server;
    const ClusterConnection& connection = servers_[server]->demand.connection;
    const std::uint64_t sent = request.sent_ns;
    // A server that answers a trial within the whole deadline is healthy, even if the asker has
    // given up earlier.
    if (sent != 0 && state(server).breaker.is_trial() && now - sent < client_.options_.deadline_ns)
      continue;
    // A server is also healthy if its connect takes no longer than the deadline.
    const bool is_connecting = connection.is_open() && !connection.is_ready();
    if (sent == 0 && is_connecting && now < connection.opened_ns() + client_.options_.deadline_ns)
      continue;
    const bool is_first_look = !std::exchange(request.was_late, true);
    // A server hangs if it has sent no byte for the whole deadline, or if its connect takes as
    // long.
    const bool is_silent =
        sent == 0 ? is_first_look && !connection.is_ready()
                  : connection.heard_ns() < sent && now - sent >= client_.options_.deadline_ns;
    const bool is_endless = sent != 0 && now - sent >= k_answer_patience_ns;
    const bool is_too_late =
        is_first_look && sent != 0 &&
        state(server).breaker.note_answer(/*is_late=*/true, most_late(request));
    if (is_silent || is_endless || is_too_late) {
      rest(server, now);
    } else if (sent == 0) {
      finish(request, Outcome::late);
    }
  }
}

// Detects servers that hang in a connect or a background command, which no request with a deadline
// reveals.
void ClusterClient::Worker::look_at_lanes(std::uint64_t now) {
  for (auto& server : servers_) {
    const ClusterConnection &demand = server->demand.connection, &fill = server->fill.connection;
    if (demand.is_open() && !demand.is_ready() && now >= demand.opened_ns() + k_answer_patience_ns)
      lane_broke(server->demand, now);
    // `filled_ns` may be later than `now`, because another command may have been sent after an
    // answer.
    if (fill.is_busy() &&
        now >= std::max(fill.opened_ns(), server->filled_ns) + k_offer_patience_ns)
      lane_broke(server->fill, now);
  }
}

std::byte* ClusterClient::Worker::Lane::room_for(Tag tag, std::uint64_t bytes) {
  if (tag >= k_requests || bytes > worker->client_.options_.most_bytes) return nullptr;
  ClusterRequest& request = worker->client_.requests_[tag];
  if (request.ask != ClusterRequest::Ask::get) return nullptr;
  const std::size_t needed = bytes + 2;
  const bool is_wasteful = request.buffer.size() > k_large_buffer && needed <= k_large_buffer / 2;
  if (request.buffer.size() < needed || is_wasteful) {
    constexpr std::size_t k_grain = 64 << 10;
    auto buffer = base::Mapping::anonymous((needed + k_grain - 1) / k_grain * k_grain);
    if (!buffer) return nullptr;
    request.buffer = std::move(*buffer);
  }
  return request.buffer.data();
}

bool ClusterClient::Worker::Lane::answered(Tag tag, const MetaAnswer& answer) {
  worker->state(server).answered_ns = worker->now_ns_;
  if (tag < k_requests) return worker->answer_request(worker->client_.requests_[tag], answer);
  if (tag == k_offer_tag) return worker->answer_offer(server, answer);
  if (answer.kind == Kind::end) worker->source_.note_figures(worker->client_.figures());
  if (answer.kind != Kind::figure) return answer.kind == Kind::end;
  std::uint64_t number = 0;
  std::from_chars(answer.text.data(), answer.text.data() + answer.text.size(), number);
  ServerState& of = worker->state(server);
  if (answer.name == "limit_maxbytes") of.capacity.store(number, std::memory_order_relaxed);
  if (answer.name == "bytes") of.used.store(number, std::memory_order_relaxed);
  if (answer.name == "curr_items") of.entries.store(number, std::memory_order_relaxed);
  return true;
}

bool ClusterClient::Worker::answer_request(ClusterRequest& request, const MetaAnswer& answer) {
  // If this returns false, the connection is closed, and the server rests, which ends the request,
  // too.
  const bool is_get = request.ask == ClusterRequest::Ask::get;
  const bool is_refusal = answer.kind == Kind::full || answer.kind == Kind::too_large;
  const bool is_fit = is_get ? answer.kind == Kind::value || answer.kind == Kind::none || is_refusal
                             : answer.kind == Kind::done || answer.kind == Kind::none ||
                                   answer.kind == Kind::refused;
  if (!is_fit) return false;
  const auto outcome = [&] {
    if (answer.kind != Kind::value) return Outcome::none;
    if (answer.size != 0) return Outcome::hit;
    return answer.is_won ? Outcome::won : Outcome::taken;
  }();
  if (!request.was_late) state(request.server).breaker.note_answer(/*is_late=*/false);
  request.size = answer.kind == Kind::value ? answer.size : 0;
  if (outcome == Outcome::won && give_back_lease(request, answer.cas)) return true;
  if (is_get) request.cas = answer.cas;
  finish(request, outcome);
  return true;
}

bool ClusterClient::Worker::give_back_lease(ClusterRequest& request, std::uint64_t cas) {
  if (request.state.load(std::memory_order_acquire) != ClusterRequest::left) return false;
  request.ask = ClusterRequest::Ask::remove;
  request.cas = cas;
  request.sent_ns = 0;
  request.was_late = request.is_admitted = false;
  request.deadline_ns = now_ns_ + client_.options_.deadline_ns;
  request.state.store(ClusterRequest::queued, std::memory_order_release);
  return true;
}

// Waits briefly for a socket to become ready. Returns false if there is no socket to wait for.
bool ClusterClient::Worker::wait(std::uint64_t now) {
  polled_.clear();
  lanes_.clear();
  bool is_slow = true;
  for (auto& server : servers_) {
    for (Lane* const lane : {&server->demand, &server->fill}) {
      if (!lane->connection.is_busy()) continue;
      if (!lane->connection.push_out()) {
        lane_broke(*lane, now);
        continue;
      }
      polled_.push_back(lane->connection.to_poll());
      lanes_.push_back(lane);
      if (now - std::max(lane->connection.heard_ns(), lane->connection.opened_ns()) <
          k_slow_after_ns)
        is_slow = false;
    }
  }
  for (auto& server : servers_) {
    if (server->query.is_under_way()) polled_.push_back(server->query.to_poll());
  }
  if (polled_.empty()) return false;
  const bool may_come = !askers_.are_all_waiting() || now >= awaited_until_ns_;
  timespec limit{0, k_poll_ns};
  if (!may_come)
    limit.tv_nsec =
        std::clamp(static_cast<long>(std::min(awaited_until_ns_ - now, base::k_ns_per_ms)),
                   k_poll_ns, k_slow_poll_ns);
  if (is_slow && !has_demand_) limit.tv_nsec = k_slow_poll_ns;
  base::sys::poll(polled_.data(), polled_.size(), &limit);
  now_ns_ = base::monotonic_ns();
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    // An error on another lane may have closed the connection of this lane.
    if (!lanes_[i]->connection.is_open() || polled_[i].fd != lanes_[i]->connection.to_poll().fd)
      continue;
    if (!lanes_[i]->connection.pump(polled_[i], *lanes_[i], now_ns_))
      lane_broke(*lanes_[i], now_ns_);
  }
  return true;
}

}  // namespace cube::cache
