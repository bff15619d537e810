#include "prefetch/engine/uring_engine.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "cache/base/clock.h"
#include "cache/origin/kept_attributes.h"
#include "prefetch/engine/engine_core.h"
#include "prefetch/engine/origin_kinds.h"
#include "prefetch/engine/uring_flight.h"
#include "prefetch/engine/uring_ring.h"
#include "prefetch/threads/callback_gate.h"

namespace cube::prefetch {
namespace {

namespace sys = base::sys;

// The longest wait of the ring's thread while operations are in flight. After each wait, the thread
// begins the fetches that were submitted in the meantime and checks for a stop.
constexpr std::uint64_t k_look_up_ns = 10'000'000;
// user_data of the completions of cancellations, which belong to no flight.
constexpr std::uint64_t k_nobody = UINT64_MAX;

class UringCore final : public EngineCore {
 public:
  using EngineCore::EngineCore;

  const char* name() const override { return "uring"; }
  void wake() override { news_.notify(); }
  void set_depth(unsigned depth) override;
  void end_flights() override { begin_stop(); }
  unsigned abandon_all() override;
  // Waits until the thread has set up the ring. Returns false if that failed; `why` then says what
  // is missing.
  bool is_set_up(std::string& why);

 private:
  void work(unsigned) override;
  void serve();
  void begin_waiting();
  void cancel_flights();
  void advance(std::uint64_t index, int result);

  // Tags a prepared operation with its flight. If the flight is not local, makes the kernel run the
  // operation in a worker.
  static void start(io_uring_sqe* sqe, std::uint64_t index, const UringFlight& flight);
  void open_name(std::uint64_t index, UringFlight& flight);
  void sort(std::uint64_t index, UringFlight& flight);
  void open(std::uint64_t index, UringFlight& flight, const char* path);
  void ask_stat(std::uint64_t index, UringFlight& flight, Stage stage);
  void read(std::uint64_t index, UringFlight& flight);
  void ask_for_room(std::uint64_t index, UringFlight& flight);
  void read_returned(std::uint64_t index, UringFlight& flight, int n);
  void end(std::uint64_t index, UringFlight& flight, Ending ending, int error = 0);
  void close(std::uint64_t index, UringFlight& flight);
  void land(UringFlight& flight);

  CallbackGate gate_;
  std::atomic<unsigned> depth_{options.depth};
  EventCount is_known_;          // the result of the set-up
  std::atomic<int> set_up_{-1};  // 1: done; 0: refused
  std::string why_;              // written before set_up_

  // Only the ring's thread uses the next members, apart from the exceptions in UringFlight.
  Ring* ring_ = nullptr;  // a local variable of work()
  std::array<std::unique_ptr<UringFlight>, k_most_depth> flights_;
  OriginKinds origins_;
  unsigned in_flight_ = 0, workers_ = 0;
  bool is_cancelled_ = false;
};

void UringCore::work(unsigned) {
  // The ring is not a member, because its fd belongs to this thread's table and must be closed in
  // this thread. The ring's workers inherit this thread's priority.
  Ring ring;
  ring_ = &ring;
  const bool ready = ring.set_up(k_most_depth, why_);
  set_up_.store(ready ? 1 : 0, std::memory_order_release);
  is_known_.notify();
  if (ready) serve();
}

void UringCore::serve() {
  while (true) {
    const auto seen = news_.now();
    const bool stopping = is_stopping();
    if (!stopping && gate_.enter()) {
      begin_waiting();
      gate_.leave();
    }
    if (stopping && !std::exchange(is_cancelled_, true)) cancel_flights();
    if (in_flight_ == 0) {
      if (stopping) return;
      news_.wait(seen);
      continue;
    }
    ring_->submit_and_wait(k_look_up_ns);
    while (io_uring_cqe* const cqe = ring_->completed()) {
      const std::uint64_t index = cqe->user_data;
      const int result = cqe->res;
      ring_->seen(cqe);
      if (index != k_nobody) advance(index, result);
    }
  }
}

void UringCore::begin_waiting() {
  const unsigned most = depth_.load(std::memory_order_relaxed);
  if (workers_ != most) ring_->set_workers(workers_ = most);
  for (std::uint64_t index = 0; in_flight_ < most && index < k_most_depth; ++index) {
    auto& flight = flights_[index];
    if (flight != nullptr && flight->stage != Stage::free) continue;
    Fetch* const fetch = queue.pop();
    if (fetch == nullptr) return;
    // An exception that leaves this thread would end the host.
    if (flight == nullptr) flight.reset(new (std::nothrow) UringFlight);
    if (flight == nullptr) {
      client.ended(*fetch, {.ending = Ending::failed, .error = ENOMEM});
      queue.one_is_over();
      // If nothing is in flight, no completion will come to begin the remaining fetches.
      if (in_flight_ == 0) queue.end_all(client, Ending::failed, ENOMEM);
      return;
    }
    flight->fetch = fetch;
    flight->has_room = false;
    flight->is_over = false;
    flight->fd = -1;
    flight->by_name = false;
    flight->is_local = origins_.is_local(fetch->origin);
    flight->result = {};
    keep_path(flight->path, fetch->path);
    flight->most_opened = fetch->most_opened;
    flight->may_be_kept = flight->is_local || cache::may_keep_attributes(flight->path);
    ++in_flight_;
    open_name(index, *flight);
  }
}

void UringCore::cancel_flights() {
  for (std::uint64_t index = 0; index < k_most_depth; ++index) {
    if (flights_[index] == nullptr || flights_[index]->stage == Stage::free ||
        flights_[index]->stage == Stage::closing)
      continue;
    io_uring_sqe* const sqe = ring_->next();
    io_uring_prep_cancel64(sqe, index, 0);
    io_uring_sqe_set_data64(sqe, k_nobody);
  }
}

void UringCore::start(io_uring_sqe* sqe, std::uint64_t index, const UringFlight& flight) {
  io_uring_sqe_set_data64(sqe, index);
  if (!flight.is_local) io_uring_sqe_set_flags(sqe, IOSQE_ASYNC);
}

void UringCore::open_name(std::uint64_t index, UringFlight& flight) {
  const bool first = flight.links != cache::LinksOnWay::some;
  flight.stage = first ? Stage::naming : Stage::naming_with_links;
  flight.how = {};
  flight.how.flags = k_name_flags;
  flight.how.resolve = first ? RESOLVE_NO_SYMLINKS : RESOLVE_NO_MAGICLINKS;
  flight.result.opens = 1;
  io_uring_sqe* const sqe = ring_->next();
  io_uring_prep_openat2(sqe, AT_FDCWD, flight.path, &flight.how);
  start(sqe, index, flight);
}

void UringCore::sort(std::uint64_t index, UringFlight& flight) {
  flight.stage = Stage::sorting;
  if (flight.is_local) {
    const long error =
        sys::statx(flight.fd, "", k_name_stat_flags, cache::FileStat::k_request, &flight.statx);
    return advance(index, static_cast<int>(error));
  }
  io_uring_sqe* const sqe = ring_->next();
  io_uring_prep_statx(sqe, flight.fd, "", k_name_stat_flags, cache::FileStat::k_request,
                      &flight.statx);
  start(sqe, index, flight);
}

void UringCore::open(std::uint64_t index, UringFlight& flight, const char* path) {
  flight.stage = Stage::opening;
  // An open through the O_PATH fd needs no lookup.
  if (flight.is_local) return advance(index, static_cast<int>(sys::open(path, k_open_flags)));
  flight.how = {};
  flight.how.flags = k_open_flags;
  io_uring_sqe* const sqe = ring_->next();
  io_uring_prep_openat2(sqe, AT_FDCWD, path, &flight.how);
  start(sqe, index, flight);
}

void UringCore::ask_stat(std::uint64_t index, UringFlight& flight, Stage stage) {
  flight.stage = stage;
  ++flight.result.stats;
  const bool asks_server = stage == Stage::looking_again || flight.may_be_kept ||
                           flight.links != cache::LinksOnWay::none;
  const int flags = AT_EMPTY_PATH | (asks_server ? cache::k_ask_server : 0);
  if (flight.is_local) {
    // A ring passes every statx to a worker. This costs more than the statx of an open local file.
    const long error = sys::statx(flight.fd, "", flags, cache::FileStat::k_request, &flight.statx);
    return advance(index, static_cast<int>(error));
  }
  io_uring_sqe* const sqe = ring_->next();
  io_uring_prep_statx(sqe, flight.fd, "", flags, cache::FileStat::k_request, &flight.statx);
  start(sqe, index, flight);
}

void UringCore::read(std::uint64_t index, UringFlight& flight) {
  flight.stage = Stage::reading;
  ++flight.result.reads;
  io_uring_sqe* const sqe = ring_->next();
  io_uring_prep_readv(sqe, flight.fd, flight.read.aim(), flight.read.k_parts, flight.read.got());
  start(sqe, index, flight);
}

// Always closes through the ring, because a close can also be a round trip.
void UringCore::close(std::uint64_t index, UringFlight& flight) {
  flight.stage = Stage::closing;
  io_uring_sqe* const sqe = ring_->next();
  io_uring_prep_close(sqe, flight.fd);
  start(sqe, index, flight);
}

void UringCore::end(std::uint64_t index, UringFlight& flight, Ending ending, int error) {
  flight.result.ending = ending;
  flight.result.error = error;
  flight.is_over = gate_.enter();
  // Otherwise the thread that closed the gate has ended the fetch.
  if (flight.is_over) {
    client.ended(*std::exchange(flight.fetch, nullptr), flight.result);
    gate_.leave();
  }
  flight.fd >= 0 ? close(index, flight) : land(flight);
}

void UringCore::land(UringFlight& flight) {
  flight.fd = -1;
  flight.stage = Stage::free;
  flight.links = cache::LinksOnWay::unknown;
  --in_flight_;
  if (flight.is_over) queue.one_is_over();
}

void UringCore::ask_for_room(std::uint64_t index, UringFlight& flight) {
  flight.stat = cache::FileStat::from(flight.statx);
  if (!gate_.enter()) return end(index, flight, Ending::cancelled);
  origins_.learn(flight.fetch->origin, flight.stat.device_major);
  flight.is_local = flight.stat.device_major != 0;
  flight.room =
      client.room_for(*flight.fetch, {.stat = flight.stat,
                                      .is_physical = flight.links == cache::LinksOnWay::none,
                                      .fd = flight.fd});
  flight.has_room = flight.result.has_room = flight.room.is_given;
  gate_.leave();
  flight.result.reason = flight.room.reason;
  if (!flight.room.is_given) return end(index, flight, Ending::declined);
  // Clears O_NONBLOCK, because a ring does not wait for the bytes of a file with this flag.
  if (flight.stat.is_regular()) sys::fcntl(flight.fd, F_SETFL, 0);
  flight.read = base::WholeRead(flight.room.data, flight.stat.size);
  read(index, flight);
}

void UringCore::read_returned(std::uint64_t index, UringFlight& flight, int n) {
  flight.result.bytes += static_cast<std::uint64_t>(n);
  switch (flight.read.after(n)) {
    case base::ReadState::more:
      return is_stopping() ? end(index, flight, Ending::cancelled) : read(index, flight);
    case base::ReadState::changed: return end(index, flight, Ending::changed);
    case base::ReadState::whole: break;
  }
  if (flight.room.look_again) return ask_stat(index, flight, Stage::looking_again);
  end(index, flight, Ending::whole);
}

void UringCore::advance(std::uint64_t index, int result) {
  UringFlight& flight = *flights_[index];
  if (flight.stage == Stage::closing) return land(flight);
  if (flight.stage == Stage::naming && result == -ELOOP) {
    flight.links = cache::LinksOnWay::some;
    return open_name(index, flight);
  }
  const bool is_naming = flight.stage == Stage::naming || flight.stage == Stage::naming_with_links;
  if (is_naming && result >= 0) flight.fd = result;
  if (flight.stage == Stage::opening && result >= 0) {
    // Closes the O_PATH fd. This close involves no server.
    sys::close(std::exchange(flight.fd, result));
  }
  // Without /proc, opens by path, although the path might name another file by now.
  const bool has_no_proc =
      flight.stage == Stage::opening && (result == -ENOENT || result == -ENOTDIR);
  if (has_no_proc && !std::exchange(flight.by_name, true)) return open(index, flight, flight.path);
  if (result == -ECANCELED || (result == -EINTR && is_cancelled_))
    return end(index, flight, Ending::cancelled);
  if (result == -EINTR && flight.stage == Stage::reading) return read(index, flight);
  if (result < 0) return end(index, flight, Ending::failed, -result);
  switch (flight.stage) {
    case Stage::naming: flight.links = cache::LinksOnWay::none; [[fallthrough]];
    case Stage::naming_with_links: return sort(index, flight);
    case Stage::sorting:
      if (!S_ISREG(flight.statx.stx_mode)) {
        flight.result.stats = 1;
        return ask_for_room(index, flight);
      }
      if (flight.statx.stx_size > flight.most_opened) {
        flight.result.opens = 0;
        return ask_for_room(index, flight);
      }
      flight.again = base::ProcFdName(flight.fd, base::ProcFdName::Table::thread);
      return open(index, flight, flight.again.c_str());
    case Stage::opening: return ask_stat(index, flight, Stage::stating);
    case Stage::stating: return ask_for_room(index, flight);
    case Stage::reading: return read_returned(index, flight, result);
    case Stage::looking_again:
      return end(index, flight,
                 cache::FileStat::from(flight.statx).is_unchanged_since(flight.stat)
                     ? Ending::whole
                     : Ending::changed);
    case Stage::free:
    case Stage::closing: return;
  }
}

void UringCore::set_depth(unsigned depth) {
  depth_.store(depth, std::memory_order_relaxed);
  news_.notify();
}

unsigned UringCore::abandon_all() {
  gate_.close();
  unsigned abandoned = 0;
  for (const auto& flight : flights_) {
    if (flight != nullptr) abandoned += abandon(flight->fetch, flight->has_room);
  }
  // Waits for the hung operations. The kernel ends a ring's operations only after the end of the
  // process, which no other process can wait for. Until then the files stay open, and the origin
  // cannot be unmounted. (Files that threads have opened are closed before the process has ended.)
  wait_for_end(options.give_back_ms * base::k_ns_per_ms);
  return abandoned;
}

bool UringCore::is_set_up(std::string& why) {
  is_known_.wait_until([this] { return set_up_.load(std::memory_order_acquire) >= 0; });
  if (set_up_.load(std::memory_order_acquire) == 1) return true;
  why = why_;
  return false;
}

}  // namespace

std::unique_ptr<IoEngine> make_uring_engine(const EngineOptions& options, FetchClient& client,
                                            std::string& why) {
  CrewPtr<UringCore> core(new UringCore(options, client));
  return core->begin(why) && core->is_set_up(why) ? engine_of(std::move(core)) : nullptr;
}

}  // namespace cube::prefetch
