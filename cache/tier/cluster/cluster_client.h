// The way to the servers. A thread of the program leaves a request in a fixed table and waits on a
// futex, no longer than its deadline; one thread of this process has the sockets, in an fd table of
// its own. A host can neither close them nor share them by a fork. The thread also sends what an
// OfferSource gives, by connections of their own, while no program waits. Invariants: nobody waits
// for a server that does not answer but for one deadline; a late answer goes to nobody; a server is
// left alone after trouble (CircuitBreaker). The asker's side allocates nothing and takes no lock.
// Life: start by who knows how to make such a thread (g_start_cluster_thread); run() is its body;
// stop() ends it. In a forked child there is no thread: the object is dead. Thread safety: all of
// it, but run and stop once at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cache/base/settings/server_row.h"
#include "cache/base/settings/stats.h"
#include "cache/tier/cluster/cluster_request.h"
#include "cache/tier/cluster/pool.h"
#include "cache/tier/cluster/wakeup.h"

namespace cube::cache {

struct ClusterFigures {
  std::uint64_t capacity = 0, used = 0, entries = 0;  // bytes, bytes, records
};

// A record for the servers: the bytes stay as they are until the source is told of its end.
struct ClusterOffer {
  ClusterKey key;
  std::span<const std::byte> parts[3];
  std::uint64_t lease_cas = 0;  // 0: it has no lease
  std::uint64_t bytes() const { return parts[0].size() + parts[1].size() + parts[2].size(); }
};

// The server has the record; it will never take it; it was not asked, or takes none for now.
enum class OfferEnd : std::uint8_t { accepted, refused, put_off };

// Called by the client's thread alone.
class OfferSource {
 public:
  // False: there is nothing to offer for now. `only_leased`: nothing but what other nodes may wait
  // for.
  virtual bool next(ClusterOffer& offer, std::uint64_t now_ns, bool only_leased) = 0;
  virtual void end_offer(ClusterOffer& offer, OfferEnd end) = 0;
  // Does this process offer what the whole node has, so that something may come up without a
  // wake-up?
  virtual bool is_leader() const = 0;
  // The figures of all servers together; asked while it leads.
  virtual void note_figures(const ClusterFigures& figures) = 0;
  // The thread ends.
  virtual void leave() = 0;

 protected:
  ~OfferSource() = default;
};

struct ClusterClientOptions {
  std::vector<std::string> servers;
  std::uint64_t deadline_ns = 20'000'000;
  std::uint64_t fill_per_second = 64 << 20;  // bytes to a server; 0: nothing is offered
  std::uint64_t most_bytes = 16 << 20;       // of a value
  std::string login;                         // "USER PASSWORD"
  base::ServerRow* rows = nullptr;           // one for each server, shared by the node
  base::Stats* stats = nullptr;
};

class ClusterClient {
 public:
  using Outcome = ClusterRequest::Outcome;
  explicit ClusterClient(ClusterClientOptions options);
  ~ClusterClient();

  // An answer, and the claim on its row. On the stack of its user: a jump that leaves it behind
  // gives the row back (held.h).
  class Answer {
   public:
    Answer();
    ~Answer() { give_back(); }
    Answer(const Answer&) = delete;
    Answer& operator=(const Answer&) = delete;
    Outcome outcome() const { return outcome_; }
    std::span<std::byte> bytes() const {
      return {request_->buffer.data(), request_->size};
    }                                                    // of a hit
    std::uint64_t cas() const { return request_->cas; }  // of hit, won

   private:
    friend class ClusterClient;
    void note(ClusterRequest& request);
    // Null: there is none, or a jump has given it back.
    ClusterRequest* let_go();
    void give_back();
    ClusterRequest* request_ = nullptr;
    bool is_noted_ = false;
    Outcome outcome_ = Outcome::skipped;
  };
  // Asks, and waits for no longer than this. `lease_seconds`: 0: no lease is wanted. `is_ahead`: no
  // program waits for the answer.
  void get(const ClusterKey& key, unsigned lease_seconds, std::uint64_t at_most_ns, Answer& answer,
           bool is_ahead = false);
  // Drops this version, some time.
  void remove(const ClusterKey& key, std::uint64_t cas);
  // Does the server of this key answer, as far as is known?
  bool is_asked(const ClusterKey& key) const;
  bool takes_offers() const;
  // The same of the server of this key.
  bool takes_offer(const ClusterKey& key) const;
  void wake() { wakeup_.wake(); }
  Wakeup& wakeup() { return wakeup_; }
  // The source has something new. Costs a load unless the thread leads and has had nothing to do
  // for a while.
  void note_news() { wakeup_.note_news(); }

  // The body of a thread with signals blocked and an fd table of its own. `source` must outlive it.
  void run(OfferSource& source);
  // Ends run(), which answers all that waits. False: not within this time.
  bool stop(std::uint64_t at_most_ns);
  // Ending: nobody queues any more, and what waits is answered.
  enum class Life : std::uint32_t { none, starting, running, ending, over };
  Life life() const { return static_cast<Life>(life_.load(std::memory_order_acquire)); }
  // For who starts it: true once.
  bool claim_start();
  // There is no thread after all; it may be tried again unless `for_good`.
  void fail_start(bool for_good);

  ClusterFigures figures() const;
  const std::vector<std::string>& servers() const;

 private:
  class Worker;
  struct ServerState;
  static constexpr std::size_t k_requests = 32;
  static void release(ClusterRequest& request);
  // Nobody waits for it any more. False: the answer is there.
  static bool leave(ClusterRequest& request);
  bool takes_offers(std::size_t server, std::uint64_t now) const;
  ClusterRequest* claim();
  void write(ClusterRequest& request, ClusterRequest::Ask ask, const ClusterKey& key) const;
  // False: there is no thread any more, and nobody has the row.
  bool queue(ClusterRequest& request);
  void end_life(Life next);
  static void finish(ClusterRequest& request, Outcome outcome);

  ClusterClientOptions options_;
  std::unique_ptr<ServerState[]> states_;
  ClusterRequest requests_[k_requests];
  std::atomic<std::uint32_t> life_{0};  // futex
  Wakeup wakeup_;
  std::atomic<bool> is_stopping_{false};
};

// Starts a thread that calls client.run, where that can be done now; set by who has such threads.
// May say no, and be asked again.
using StartClusterThread = void (*)(ClusterClient& client, OfferSource& source);
extern constinit std::atomic<StartClusterThread> g_start_cluster_thread;

}  // namespace cube::cache
