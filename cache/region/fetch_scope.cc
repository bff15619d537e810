#include "cache/region/fetch_scope.h"

#include "cache/base/clock.h"
#include "cache/base/process/block_signals.h"
#include "cache/base/process/signal_frame.h"
#include "cache/base/process/went_out.h"
#include "cache/region/posix_locks.h"

namespace cube::cache {
namespace {

struct ThreadFetch {
  const FetchScope* scope = nullptr;
  SingleFlight::Hold flight, second;
  int fd = -1;
  ProcessSlot* waits_in = nullptr;
  std::uint64_t waits_since = 0;
};
constinit thread_local ThreadFetch t_fetch [[gnu::tls_model("initial-exec")]];

void before_next_store() { std::atomic_signal_fence(std::memory_order_seq_cst); }

// A jump can happen between any two stores. So the slot is written last and cleared first: without
// a slot, there is no flight.
void set_flight(SingleFlight::Hold& to, const SingleFlight::Hold& flight) {
  to.word = flight.word;
  to.flights = flight.flights;
  to.epoch = flight.epoch;
  before_next_store();
  to.slot = flight.slot;
}

void clear() {
  t_fetch.flight.slot = nullptr;
  t_fetch.second.slot = nullptr;
  t_fetch.waits_in = nullptr;
  before_next_store();
  t_fetch = {};
}

void end_wait_of_thread() {
  ProcessSlot* const process = std::exchange(t_fetch.waits_in, nullptr);
  if (process == nullptr) return;
  process->demand_waits.fetch_sub(1, std::memory_order_relaxed);
  process->demand_fetches.fetch_add(1, std::memory_order_relaxed);
  process->demand_ns.fetch_add(base::monotonic_ns() - t_fetch.waits_since,
                               std::memory_order_relaxed);
}

// Blocks signals, because nothing would own the flight after a jump out of this function.
void end_left_fetch() {
  const base::BlockSignals block;
  if (const int fd = std::exchange(t_fetch.fd, -1); fd >= 0) PosixLocks::close(fd);
  t_fetch.flight.end();
  t_fetch.second.end();
  end_wait_of_thread();
  clear();
}

}  // namespace

FetchScope::FetchScope() {
  base::note_way_out(base::Way::waited);
  clear();
  before_next_store();
  t_fetch.scope = this;
}

FetchScope::~FetchScope() {
  end_wait();
  if (is_own()) clear();
}

bool FetchScope::is_open() {
  if (t_fetch.scope == nullptr) [[likely]]
    return false;
  if (base::may_be_in_handler()) return true;
  end_left_fetch();
  return false;
}

void FetchScope::forget() { clear(); }

bool FetchScope::is_own() const { return t_fetch.scope == this; }

void FetchScope::hold(const SingleFlight::Hold& flight, const SingleFlight::Hold& second) {
  set_flight(t_fetch.second, second);
  set_flight(t_fetch.flight, flight);
}

void FetchScope::begin_wait(ProcessSlot& process) {
  process.demand_waits.fetch_add(1, std::memory_order_relaxed);
  t_fetch.waits_since = base::monotonic_ns();
  before_next_store();
  t_fetch.waits_in = &process;
}

void FetchScope::end_wait() {
  if (is_own()) end_wait_of_thread();
}

bool FetchScope::note_fd(int fd) {
  if (t_fetch.scope == nullptr) return false;
  t_fetch.fd = fd;
  return true;
}

bool FetchScope::has_fd(int fd) { return t_fetch.fd == fd; }

bool FetchScope::let_go_of_fd(int fd) {
  if (t_fetch.fd != fd) return false;
  t_fetch.fd = -1;
  return true;
}

}  // namespace cube::cache
