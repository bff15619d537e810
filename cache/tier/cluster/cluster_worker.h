// The work of the client's thread. A Worker sends queued requests, delivers answers, enforces
// deadlines, operates the circuit breakers, and offers records. Thread safety: one thread. A Worker
// shares only the requests and the ServerStates with other threads.
#pragma once

#include <atomic>
#include <vector>

#include "cache/tier/cluster/cluster_client.h"
#include "cache/tier/cluster/cluster_connection.h"
#include "cache/tier/cluster/dns/dns_query.h"
#include "cache/tier/cluster/idle_gate.h"
#include "cache/tier/cluster/limits/askers.h"
#include "cache/tier/cluster/limits/circuit_breaker.h"

namespace cube::cache {

struct ClusterClient::ServerState {
  CircuitBreaker breaker;
  std::atomic<bool> is_left_out{false};  // the server's name has no address
  std::atomic<std::uint64_t> no_offers_until_ns{0};
  std::uint64_t answered_ns = 0;  // the time of the last answer of any kind
  bool is_full = false;           // the server had no room for the last offer
  std::atomic<std::uint64_t> capacity{0}, used{0}, entries{0};  // figures reported by the server
  std::uint64_t too_large = UINT64_MAX;  // size in bytes of the smallest refused value
};

class ClusterClient::Worker {
 public:
  Worker(ClusterClient& client, OfferSource& source);
  ~Worker();
  void run();

 private:
  using Kind = MetaAnswer::Kind;
  using Tag = ClusterConnection::Tag;
  // A lane is one connection, either for demand or for offers.
  struct Lane final : ClusterConnection::Listener {
    Worker* worker = nullptr;
    std::size_t server = 0;
    bool is_fill = false;
    ClusterConnection connection;
    std::byte* room_for(Tag tag, std::uint64_t bytes) override;
    bool answered(Tag tag, const MetaAnswer& answer) override;
  };
  struct Server {
    ServerAddress address;
    bool has_address = false;
    // The lookup of the server's name. The lookup runs at the start, and again whenever the server
    // begins to rest.
    DnsQuery query;
    bool is_asked_for = false, is_told = false;
    unsigned failures = 0;
    std::uint64_t next_look_ns = 0;  // UINT64_MAX: no lookup is needed
    Lane demand, fill;
    std::uint64_t next_figures_ns = 0, filled_ns = 0;  // filled_ns: the time of the last command of
                                                       // `fill`
  };
  static constexpr std::uint64_t k_least_doze_ns = 20'000'000, k_offer_patience_ns = 2'000'000'000;
  static constexpr Tag k_offer_tag = 1000, k_figures_tag = 1001;
  // The steps of an offer. `waiting`: the offer waits for its connection. `looking`: the server is
  // asked whether it has the record. `paying`: the offer waits for the token bucket. `sending`: the
  // bytes are being sent.
  enum class Step : std::uint8_t { none, waiting, looking, paying, sending };

  void look_up_names(std::uint64_t now);
  void end_look(std::size_t server, std::uint64_t now);
  ServerState& state(std::size_t server) { return client_.states_[server]; }
  bool prepare(Lane& lane, std::uint64_t now);
  void send_queued(std::uint64_t now);
  void send(ClusterRequest& request, std::uint64_t now);
  void finish(ClusterRequest& request, Outcome outcome);
  bool answer_request(ClusterRequest& request, const MetaAnswer& answer);
  // If no thread waits for the request, reuses its row for the command that drops the lease.
  // Returns false if a thread waits.
  bool give_back_lease(ClusterRequest& request, std::uint64_t cas);
  int most_late(const ClusterRequest& request) const;
  void look_at_deadlines(std::uint64_t now);
  void look_at_lanes(std::uint64_t now);
  void rest(std::size_t server, std::uint64_t now, std::uint64_t at_least_ns = 0);
  void lane_broke(Lane& lane, std::uint64_t now);
  // Ends all sent requests of this server with this outcome. With `also_queued`, ends the queued
  // requests, too.
  void drop_requests(std::size_t server, Outcome outcome, bool also_queued);
  void offer(std::uint64_t now);
  std::uint64_t offer_token();
  void look_for_offer();
  void send_offer();
  void note_there(bool is_there) { were_there_ = were_there_ << 1 | (is_there ? 1 : 0); }
  bool is_offer_sent() const { return step_ == Step::looking || step_ == Step::sending; }
  bool answer_offer(std::size_t server, const MetaAnswer& answer);
  void end_offer(OfferEnd end);
  void ask_figures(std::uint64_t now);
  void tell_rows(std::uint64_t now);
  bool wait(std::uint64_t now);
  // Sleeps until another thread wakes this thread, or for a while. `seen` must come from
  // Wakeup::count().
  void sleep(std::uint32_t seen);

  ClusterClient& client_;
  OfferSource& source_;
  std::vector<std::unique_ptr<Server>> servers_;
  std::vector<pollfd> polled_;
  std::vector<Lane*> lanes_;
  std::uint64_t now_ns_ = 0;
  std::uint64_t doze_ns_ = k_least_doze_ns;
  bool has_demand_ = false;
  IdleGate gate_;
  Askers askers_;
  std::uint64_t awaited_until_ns_ = UINT64_MAX;  // the earliest deadline of the awaited requests
  ClusterOffer offer_;
  Step step_ = Step::none;
  std::size_t offer_server_ = 0;
  std::uint64_t offer_began_ns_ = 0, next_tell_ns_ = 0;
  std::uint64_t offer_cas_ = 0;  // the version of the item that the bytes replace; 0: the item is
                                 // new
  unsigned sendings_ = 0;        // the number of times that this offer was sent
  bool has_looked_ = false;
  std::uint32_t were_there_ =
      UINT32_MAX;  // one bit for each of the last offers; 1: the server already had the record
};

}  // namespace cube::cache
