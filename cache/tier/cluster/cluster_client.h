// The client of the memcached servers. A thread that asks (the asker) enters a request in a fixed
// table, and waits on a futex until the answer arrives or the deadline passes. Another thread of
// the process, the client's thread, has the sockets. The client's thread has its own fd table, so
// the host program cannot close the sockets or pass them on by a fork. While no program waits, the
// client's thread also sends the records of an OfferSource, over separate connections. To start the
// thread, the function g_start_cluster_thread calls claim_start(). run() is the body of the thread,
// and stop() ends it. A forked child does not have the thread, and must not use the object.
// Invariants: a server that does not answer delays an asker by at most one deadline. A late answer
// is dropped. After errors, a server is not asked for a while (CircuitBreaker). The functions for
// askers allocate nothing and take no lock. Thread-safe, but only one thread at a time may call
// run(), and only one may call stop().
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
#include "cache/tier/cluster/limits/ahead_window.h"
#include "cache/tier/cluster/wakeup.h"

namespace cube::cache {

struct ClusterFigures {
  std::uint64_t capacity = 0, used = 0, entries = 0;  // bytes, bytes, records
};

// A record that is offered to the servers. Its bytes must not change until end_offer() was called.
struct ClusterOffer {
  ClusterKey key;
  std::span<const std::byte> parts[3];
  std::uint64_t lease_cas = 0;  // 0: the offer has no lease
  std::uint64_t bytes() const { return parts[0].size() + parts[1].size() + parts[2].size(); }
};

// `accepted`: the server has the record. `refused`: the server will never accept the record.
// `put_off`: the server was not asked, or accepts no records at the moment.
enum class OfferEnd : std::uint8_t { accepted, refused, put_off };

// The source of records to offer. Only the client's thread calls it.
class OfferSource {
 public:
  // Sets `offer` to the next record. False: there is nothing to offer now. `only_leased`: considers
  // only records for which other nodes may wait.
  virtual bool next(ClusterOffer& offer, std::uint64_t now_ns, bool only_leased) = 0;
  virtual void end_offer(ClusterOffer& offer, OfferEnd end) = 0;
  // Whether this process offers the records of the whole node. If so, new records may appear
  // without a wake-up.
  virtual bool is_leader() const = 0;
  // Called with the sums of all servers' figures. The servers are asked for them only while this
  // process is the leader.
  virtual void note_figures(const ClusterFigures& figures) = 0;
  // Called when the client's thread ends.
  virtual void leave() = 0;

 protected:
  ~OfferSource() = default;
};

struct ClusterClientOptions {
  std::vector<std::string> servers;
  std::uint64_t deadline_ns = 20'000'000;
  std::uint64_t fill_per_second = 64 << 20;  // bytes to each server; 0: no records are offered
  std::uint64_t most_bytes = 16 << 20;       // the size of the largest value
  std::string login;                         // "USER PASSWORD"
  base::ServerRow* rows = nullptr;           // one row for each server, shared by the node
  base::Stats* stats = nullptr;
};

class ClusterClient {
 public:
  using Outcome = ClusterRequest::Outcome;
  explicit ClusterClient(ClusterClientOptions options);
  ~ClusterClient();

  // An answer, and the row of the request, which it occupies. The object must live on the stack of
  // its user. If a jump leaves the object behind, base::Held frees the row (held.h).
  class Answer {
   public:
    Answer();
    ~Answer() { give_back(); }
    Answer(const Answer&) = delete;
    Answer& operator=(const Answer&) = delete;
    Outcome outcome() const { return outcome_; }
    std::span<std::byte> bytes() const {
      return {request_->buffer.data(), request_->size};
    }                                                    // valid only for a hit
    std::uint64_t cas() const { return request_->cas; }  // valid only for a hit or a won lease

   private:
    friend class ClusterClient;
    void note(ClusterRequest& request);
    // Detaches the row from the object without freeing it, and returns it. Null: there is no row,
    // or it was given back after a jump.
    ClusterRequest* let_go();
    void give_back();
    ClusterRequest* request_ = nullptr;
    bool is_noted_ = false;
    Outcome outcome_ = Outcome::skipped;
  };
  // Asks for a value, and waits at most `at_most_ns` for it. If `lease_seconds` is not 0, asks for
  // a lease, too. `is_ahead`: no program waits for the answer.
  void get(const ClusterKey& key, unsigned lease_seconds, std::uint64_t at_most_ns, Answer& answer,
           bool is_ahead = false);
  // Makes the server drop this version of the item. Does not wait for the answer.
  void remove(const ClusterKey& key, std::uint64_t cas);
  // Whether a request for this key would be sent. False: the server is known not to answer.
  bool is_asked(const ClusterKey& key) const;
  bool takes_offers() const;
  // Like takes_offers, but only for the server of this key.
  bool takes_offer(const ClusterKey& key) const;
  void wake() { wakeup_.wake(); }
  Wakeup& wakeup() { return wakeup_; }
  // Tells the thread that the source has new records. Wakes the thread if it leads and has been
  // idle for a while; otherwise costs only a load.
  void note_news() { wakeup_.note_news(); }

  // The body of the client's thread. The thread must have its own fd table, and all signals must be
  // blocked. `source` must outlive the thread.
  void run(OfferSource& source);
  // Makes run() answer all waiting requests and return. False: run() has not returned within this
  // time.
  bool stop(std::uint64_t at_most_ns);
  // `ending`: new requests are refused, and waiting requests are answered.
  enum class Life : std::uint32_t { none, starting, running, ending, over };
  Life life() const { return static_cast<Life>(life_.load(std::memory_order_acquire)); }
  // Returns true to exactly one caller, which must then start the thread.
  bool claim_start();
  // Notes that the thread could not be started. Unless `for_good` is true, another start may be
  // tried later.
  void fail_start(bool for_good);

  ClusterFigures figures() const;

 private:
  class Worker;
  struct ServerState;
  static constexpr std::size_t k_requests = 32;
  static_assert(k_requests > AheadWindow::k_most_held);
  static void release(ClusterRequest& request);
  // Called by an asker that gives up waiting. False: the answer has already arrived.
  static bool leave(ClusterRequest& request);
  bool takes_offers(std::size_t server, std::uint64_t now) const;
  ClusterRequest* claim();
  void write(ClusterRequest& request, ClusterRequest::Ask ask, const ClusterKey& key) const;
  // Queues the request for the thread. False: the thread has ended, and the row is now free.
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

// A function that starts a thread that calls client.run(). Code that can start such threads sets
// this pointer. If no thread can be started now, the function does nothing, and is called again
// later.
using StartClusterThread = void (*)(ClusterClient& client, OfferSource& source);
extern constinit std::atomic<StartClusterThread> g_start_cluster_thread;

}  // namespace cube::cache
