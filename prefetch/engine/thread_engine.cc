#include "prefetch/engine/thread_engine.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <mutex>
#include <utility>

#include "cache/base/condition.h"
#include "cache/base/whole_read.h"
#include "cache/origin/kept_attributes.h"
#include "cache/origin/origins.h"
#include "prefetch/engine/engine_core.h"
#include "prefetch/engine/whole_file.h"
#include "prefetch/threads/callback_gate.h"
#include "prefetch/threads/starter_traits.h"

namespace cube::prefetch {
namespace {

namespace sys = base::sys;

struct Worker {
  CallbackGate gate;
  bool is_taken = false;  // guarded by ThreadCore::mutex_
  // The next members are written inside the gate. A thread that has closed the gate may read them.
  Fetch* fetch = nullptr;
  bool has_room = false;
  bool may_be_kept = true;  // see cache/origin/kept_attributes.h
  // The next members are copies, because the client may destroy its fetch as soon as the gate is
  // closed.
  cache::OriginSpan place, together;
  std::uint64_t most_opened = UINT64_MAX;
  bool has_span = false;  // the opened place holds the bytes of `together`
  // A copy, because the client may destroy its fetch as soon as the gate is closed.
  char path[PATH_MAX + 1];
};

// The core of the thread engine. A worker takes one fetch after another without the lock, until the
// queue is empty.
class ThreadCore final : public EngineCore {
 public:
  using EngineCore::EngineCore;

  const char* name() const override { return "threads"; }
  void wake() override;
  void set_depth(unsigned depth) override;
  void end_flights() override;
  unsigned abandon_all() override;

 private:
  void work(unsigned number) override { number == 0 ? keep() : serve(); }
  bool wants_thread() {
    return idle_ == 0 && threads_ < depth_ && running_ + starting_ < depth_ &&
           queue.size() > starting_;
  }
  void keep();
  // These functions hold mutex_, except while a fetch runs.
  void start_one(base::Condition::Lock& lock);
  void serve();
  bool wait_for_work(base::Condition::Lock& lock);
  void wake_one();

  bool take(Worker& worker);
  // Call inside the gate.
  static void set_fetch(Worker& worker, Fetch* fetch);
  // Returns false if the gate was closed. The thread that closed it has then ended the fetch and
  // all others of the request.
  bool fetch_one(Worker& worker, cache::OpenedPlace& place);
  bool open_whole(Worker& worker, const cache::Origin& origin, cache::OpenedPlace& place,
                  FetchResult& result, int& error);
  // Declines the fetch if RAM has no room.
  void fill_by_origin(Worker& worker, const cache::Origin& origin, cache::OpenedPlace& place,
                      FetchResult& result);
  // Returns false if the file must be opened.
  bool ask_first(Worker& worker, FetchResult& result);
  // Returns false if there is no room or the gate is closed.
  bool ask_for_room(Worker& worker, const cache::FileAtOrigin& file, FetchResult& result,
                    Room& room);
  // Returns false if the file's origin does not read whole files in one open.
  bool fetch_by_open(Worker& worker, cache::OpenedPlace& place, FetchResult& result);
  void fetch_opened(Worker& worker, int fd, cache::LinksOnWay links, FetchResult& result);

  // Opened again in the threads' own fd table, before any worker runs.
  std::unique_ptr<cache::Origins> origins_;
  base::Mutex mutex_;
  base::Condition work_, keeping_;
  Worker workers_[k_most_depth];
  // Written under mutex_. A worker that is about to sleep or end updates these fields, and then
  // checks the queue for the last time. wake() is called after something was queued, and then reads
  // these fields. So either the worker sees the queued fetch, or wake() sees the worker's update.
  std::atomic<unsigned> depth_{options.depth}, threads_{0}, idle_{0}, running_{0};
  std::atomic<bool> is_waking_{false};
  unsigned starting_ = 0;  // guarded by mutex_
};

void ThreadCore::keep() {
  if (options.origins != nullptr) origins_ = options.origins->reopened();
  std::unique_lock lock(mutex_);
  while (!is_stopping()) {
    if (wants_thread()) {
      start_one(lock);
    } else {
      keeping_.wait(lock);
    }
  }
}

void ThreadCore::start_one(base::Condition::Lock& lock) {
  ++threads_;
  ++starting_;
  lock.unlock();
  const int error = start_thread(may_change_traits());
  lock.lock();
  if (error == 0) return;
  --threads_;
  --starting_;
  // No more threads can be created, so the existing ones must suffice.
  if (threads_ != 0) return keeping_.wait(lock);
  lock.unlock();
  queue.end_all(client, Ending::failed, error);
  lock.lock();
}

void ThreadCore::serve() {
  cache::OpenedPlace place;
  std::unique_lock lock(mutex_);
  --starting_;
  Worker& worker = *std::find_if(workers_, workers_ + k_most_depth,
                                 [](const Worker& one) { return !one.is_taken; });
  worker.is_taken = true;
  do {
    if (running_ >= depth_) continue;
    ++running_;
    // If there is more work than this worker can take, it wakes the next worker.
    if (queue.size() > 1) wake_one();
    lock.unlock();
    while (take(worker)) {
      while (worker.fetch != nullptr && fetch_one(worker, place)) {
      }
    }
    lock.lock();
    --running_;
  } while (!is_stopping() && !worker.gate.is_closed() && wait_for_work(lock));
  worker.is_taken = worker.gate.is_closed();
}

// Returns false if there was no work for idle_ms; the thread is then no longer counted.
bool ThreadCore::wait_for_work(base::Condition::Lock& lock) {
  const auto has_work = [this] {
    is_waking_ = false;
    return is_stopping() || (running_ < depth_ && queue.size() != 0);
  };
  ++idle_;
  const bool in_time = work_.wait_until(lock, has_work, options.idle_ms * base::k_ns_per_ms);
  --idle_;
  if (in_time) return true;
  --threads_;
  if (!has_work()) return false;
  ++threads_;
  return true;
}

bool ThreadCore::take(Worker& worker) {
  if (running_ > depth_ || !worker.gate.enter()) return false;
  Fetch* const fetch = queue.pop();
  worker.has_span = false;
  set_fetch(worker, fetch);
  worker.gate.leave();
  return fetch != nullptr;
}

void ThreadCore::set_fetch(Worker& worker, Fetch* fetch) {
  worker.fetch = fetch;
  worker.has_room = false;
  if (fetch == nullptr) return;
  keep_path(worker.path, fetch->path);
  worker.most_opened = fetch->most_opened;
  worker.place = fetch->place;
  worker.together = fetch->together;
}

bool ThreadCore::ask_for_room(Worker& worker, const cache::FileAtOrigin& file, FetchResult& result,
                              Room& room) {
  if (!worker.gate.enter()) return false;
  room = client.room_for(*worker.fetch, file);
  result.has_room = worker.has_room = room.is_given;
  worker.gate.leave();
  if (!room.is_given) {
    result.ending = Ending::declined;
    result.reason = room.reason;
  }
  return room.is_given || room.is_by_origin;
}

// Returns false if the origin does not have the name; the name can still exist on a mount.
bool ThreadCore::open_whole(Worker& worker, const cache::Origin& origin, cache::OpenedPlace& place,
                            FetchResult& result, int& error) {
  cache::OriginOpen wish{.key = worker.path, .path = worker.path, .most = options.max_file};
  if (!worker.together.is_empty()) {
    wish.together = worker.together;
    wish.place = worker.place;
    ++result.reads;
    worker.has_span = static_cast<bool>(origin.open(wish, place));
    if (worker.has_span) return true;
    wish.together = {};
  } else if (worker.has_span && place.opened()->move_to(worker.path, worker.place)) {
    return true;
  }
  worker.has_span = false;
  const auto opened = origin.open(wish, place);
  error = opened ? 0 : opened.error().value;
  if (error == ENOENT && !origin.traits().knows_all_names) return false;
  if (!origin.traits().is_counted_elsewhere) ++result.reads;
  return true;
}

void ThreadCore::fill_by_origin(Worker& worker, const cache::Origin& origin,
                                cache::OpenedPlace& place, FetchResult& result) {
  const auto opened = origin.open({.key = worker.path,
                                   .path = worker.path,
                                   .most = options.max_file,
                                   .may_fill = true,
                                   .is_ahead = true},
                                  place);
  if (!opened) {
    result.ending = Ending::failed;
    result.error = opened.error().value;
  } else if (place.opened()->file().is_in_ram) {
    result.ending = Ending::whole;
    result.bytes = place.opened()->file().stat.size;
    result.is_counted_elsewhere = origin.traits().is_counted_elsewhere;
  }
}

bool ThreadCore::fetch_by_open(Worker& worker, cache::OpenedPlace& place, FetchResult& result) {
  if (origins_ == nullptr) return false;
  const cache::Origin& origin = origins_->of(worker.path);
  if (!origin.traits().is_whole_in_one_read) return false;
  int error = 0;
  if (!open_whole(worker, origin, place, result, error)) return false;
  result.ending = Ending::failed;
  result.error = error;
  if (error != 0 && error != EISDIR) return true;
  // After EISDIR, `file` describes a directory or something else that is not a regular file.
  const cache::FileAtOrigin& file = place.opened()->file();
  Room room;
  if (!ask_for_room(worker, file, result, room)) return true;
  if (room.is_by_origin) {
    fill_by_origin(worker, origin, place, result);
  } else if (error != 0) {
    result.error = EFBIG;
  } else if (const auto read = place.opened()->read_whole(room.data); read) {
    result.bytes = file.stat.size;
    result.is_counted_elsewhere = origin.traits().is_counted_elsewhere;
    result.data_hash = place.opened()->data_hash();
    result.ending = Ending::whole;
  } else {
    result.error = read.error().value;
  }
  return true;
}

bool ThreadCore::ask_first(Worker& worker, FetchResult& result) {
  using Do = FetchClient::First::Do;
  base::Result<cache::FileStat> looked = base::fail(ENOENT);
  for (bool has_looked = false;; has_looked = true) {
    // Otherwise the thread that closed the gate has ended the fetch.
    if (!worker.gate.enter()) return true;
    const bool asks = worker.fetch->asks_first;
    const FetchClient::First first =
        asks ? client.before_open(*worker.fetch, has_looked ? &looked : nullptr)
             : FetchClient::First{};
    worker.gate.leave();
    if (first.what == Do::decline) {
      result.ending = Ending::declined;
      result.reason = first.reason;
      return true;
    }
    if (first.what == Do::open || has_looked) return false;
    ++result.stats;
    looked = cache::stat_path(AT_FDCWD, worker.path,
                              AT_SYMLINK_NOFOLLOW | cache::flag_to_ask_server(worker.path));
  }
}

bool ThreadCore::fetch_one(Worker& worker, cache::OpenedPlace& place) {
  FetchResult result;
  cache::LinksOnWay links = cache::LinksOnWay::unknown;
  base::Result<int> fd = base::fail(ENOENT);
  if (!ask_first(worker, result) && !fetch_by_open(worker, place, result)) {
    result.opens = 1;
    worker.may_be_kept = cache::may_keep_attributes(worker.path);
    cache::FileStat named{};
    fd = open_for_fetch(worker.path, links, named, worker.most_opened);
    if (fd && named.is_regular() && named.size > worker.most_opened) {
      result.opens = 0;
      Room none;
      ask_for_room(worker, {.stat = named, .fd = *fd}, result, none);
    } else if (fd) {
      fetch_opened(worker, *fd, links, result);
    } else {
      result.ending = Ending::failed;
      result.error = fd.error().value;
    }
  }
  // Otherwise the thread that closed the gate has ended the fetch.
  const bool is_ours = worker.gate.enter();
  bool is_last = false;
  if (is_ours) {
    Fetch* const fetch = worker.fetch;
    is_last = fetch->beside == nullptr;
    set_fetch(worker, fetch->beside);
    // Comes before the close, which can be another round trip.
    client.ended(*fetch, result);
    worker.gate.leave();
  }
  if (fd) sys::close(*fd);
  if (is_last) queue.one_is_over();
  return is_ours;
}

void ThreadCore::fetch_opened(Worker& worker, int fd, cache::LinksOnWay links,
                              FetchResult& result) {
  const auto fail = [&](int error) {
    result.ending = Ending::failed;
    result.error = error;
  };
  result.stats = 1;
  const bool is_servers_word = !worker.may_be_kept && links == cache::LinksOnWay::none;
  const auto stat = cache::stat_fd(fd, is_servers_word ? 0 : cache::k_ask_server);
  if (!stat) return fail(stat.error().value);
  const bool is_physical = links == cache::LinksOnWay::unknown ? cache::has_path(fd, worker.path)
                                                               : links == cache::LinksOnWay::none;
  const cache::FileAtOrigin file{.stat = *stat, .is_physical = is_physical, .fd = fd};
  Room room;
  if (!ask_for_room(worker, file, result, room)) return;
  using base::ReadState;
  base::WholeRead read(room.data, file.stat.size);
  ReadState state = ReadState::more;
  while (state == ReadState::more) {
    if (worker.gate.is_closed()) return;
    ++result.reads;
    const long n =
        sys::raw(SYS_preadv, fd, sys::arg(read.aim()), read.k_parts, static_cast<long>(read.got()));
    if (n == -EINTR) continue;
    if (sys::failed(n)) return fail(static_cast<int>(-n));
    result.bytes += static_cast<std::uint64_t>(n);
    state = read.after(n);
  }
  if (state == ReadState::whole && room.look_again) {
    ++result.stats;
    const auto now = cache::stat_fd(fd, cache::k_ask_server);
    if (!now || !now->is_unchanged_since(file.stat)) state = ReadState::changed;
  }
  result.ending = state == ReadState::whole ? Ending::whole : Ending::changed;
}

void ThreadCore::wake() {
  // If all allowed threads are working, they will check the queue before they sleep.
  if ((idle_ == 0 && threads_ >= depth_) || is_waking_) return;
  const std::lock_guard lock(mutex_);
  wake_one();
}

void ThreadCore::wake_one() {
  if (idle_ != 0 && running_ < depth_ && !is_waking_.exchange(true)) work_.notify_one();
  if (wants_thread()) keeping_.notify_one();
}

void ThreadCore::set_depth(unsigned depth) {
  const std::lock_guard lock(mutex_);
  depth_ = depth;
  work_.notify();
  keeping_.notify();
}

void ThreadCore::end_flights() {
  const std::lock_guard lock(mutex_);
  begin_stop();
  work_.notify();
  keeping_.notify();
}

unsigned ThreadCore::abandon_all() {
  unsigned abandoned = 0;
  for (Worker& worker : workers_) {
    worker.gate.close();
    abandoned += abandon(worker.fetch, worker.has_room);
  }
  return abandoned;
}

}  // namespace

std::unique_ptr<IoEngine> make_thread_engine(const EngineOptions& options, FetchClient& client,
                                             std::string& why) {
  CrewPtr<ThreadCore> core(new ThreadCore(options, client));
  return core->begin(why) ? engine_of(std::move(core)) : nullptr;
}

}  // namespace cube::prefetch
