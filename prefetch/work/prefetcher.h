// Prefetcher fetches offered files into the cache, many at a time. It pauses while the cache has no
// room.
//
// An offered file waits in a short queue. Its fetch begins when it leaves the queue, so a program
// that needs a waiting file fetches it itself. A file goes to the resident pool, the segments that
// keep their records, or, if that is full, to the ring. While both are full, the next file waits. A
// file that is not fetched is handed back with the reason. Thread safety: any thread may call
// offer, set_depth, pump, counts, is_idle and stop; only one may call take_refused and
// take_settled.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cache/base/mutex.h"
#include "cache/file_cache.h"
#include "prefetch/engine/engine_choice.h"
#include "prefetch/order/path_source.h"
#include "prefetch/pace/ring_watch.h"
#include "prefetch/pace/run_ahead.h"
#include "prefetch/threads/event_count.h"
#include "prefetch/work/large_fetcher.h"

namespace cube::prefetch {

enum class Refused : std::uint8_t {
  missing,
  directory,
  not_a_file,
  too_large,
  no_room,
  busy,
  failed,
  bad_range
};

struct RefusedFile {
  PlannedFile file;
  Refused why = Refused::failed;
  int error = 0;  // an errno if the reason is missing or failed
  // If no_room: the wanted bytes, and how many of these are missing; 0: unknown.
  std::uint64_t bytes = 0, missing = 0;
};

struct PrefetchCounts {
  std::uint64_t fetched = 0, fetched_bytes = 0;
  std::uint64_t cached = 0;    // files that were in the cache already
  std::uint64_t demanded = 0;  // a program fetched the file first
  std::uint64_t refused = 0;
  std::uint64_t large = 0;  // how many of the fetched and cached files were large
  // The fetches that have not ended: the large ones with a known size, their bytes still to come,
  // and all others.
  std::uint64_t measured = 0, bytes_to_come = 0, unmeasured = 0;
};

class Prefetcher final : public FetchClient, public LargeClient {
 public:
  struct Options {
    base::EngineKind engine = base::EngineKind::automatic;
    unsigned depth = 64;
    bool use_ring = false;
    bool asks_for_blocks = false;  // see LargeFetcher::make
    int nice = 5;
    std::vector<std::string> prefixes;  // the files below one prefix are on one mount
    bool keep_refused = true;           // whether take_refused() will be called
    // Notified when more may be offered and when all has ended; null: the prefetcher uses its own.
    EventCount* progress = nullptr;
  };
  // Null: `why` is the reason.
  static std::unique_ptr<Prefetcher> make(cache::FileCache& cache, Options options,
                                          std::string& why);
  ~Prefetcher();

  // False: enough files are waiting; `file` is unchanged.
  bool offer(PlannedFile& file);
  bool wants_more();
  // Like wants_more(), but for a file of this reader: some are taken beyond the limit while no
  // fetch can begin for lack of room.
  bool wants_more_of(std::uint32_t reader);
  // Begins as many fetches as may begin. Call it if there may be room for a reason other than the
  // end of a fetch.
  void pump();
  void set_depth(unsigned depth);
  // True if no file waits or is under way.
  bool is_idle();
  // The earliest file, in this reader's order, that waits or is under way; it need not be the one
  // that was offered first. Empty: all have ended.
  std::optional<std::uint64_t> first_unended(std::uint32_t reader);
  // True if the waiting files have been dropped, and perhaps also fetches under way.
  bool is_stopped();
  unsigned in_flight() {
    return std::max(in_flight_.load(std::memory_order_relaxed), large_->in_flight());
  }
  // True if the next file waits for room in the ring.
  bool is_blocked();
  // True if, since the last call, the next file has waited, and a reader that has few files in the
  // ring while others have many has itself fetched files that waited here.
  bool take_starved();
  PrefetchCounts counts();
  // Counts fetches of whole files from the origin since the last call.
  struct Took {
    std::uint64_t ns = 0, fetches = 0;
  };
  Took take_times() {
    return {took_ns_.exchange(0, std::memory_order_relaxed),
            took_fetches_.exchange(0, std::memory_order_relaxed)};
  }
  std::vector<RefusedFile> take_refused();
  // Returns what was settled since the last call, including by ring_watch().
  std::vector<Settled> take_settled();
  // See event_count.h for how to wait for it.
  EventCount& progress() { return *progress_; }
  RingWatch& ring_watch() { return watch_; }

  // Cancels waiting files, and abandons hung fetches after `patience_ms`. A second caller waits for
  // the first, because a process that ends before the files of a ring are closed leaves the mount
  // busy.
  void stop(unsigned patience_ms);

  First before_open(Fetch& fetch, const base::Result<cache::FileStat>* looked) override;
  Room room_for(Fetch& fetch, const cache::FileAtOrigin& file) override;
  void ended(Fetch& fetch, const FetchResult& result) override;
  void large_ended(std::unique_ptr<LargeFetch> fetch) override;

 private:
  struct PlannedFetch : Fetch {
    PlannedFetch(cache::FileCache& cache, PlannedFile&& planned, bool use_ring)
        : file(std::move(planned)), fetch(cache.ahead().fill(file.path, use_ring)) {
      path = file.path.c_str();
    }
    PlannedFile file;
    cache::BackgroundFill fetch;
    bool is_placed = false;     // the fetch has asked for room
    bool is_by_origin = false;  // Room::by_origin
    // One request may read several fetches, which count as one in flight. True if this is the
    // first, or the last, of them.
    bool is_first = true, is_last = true;
    PlannedFetch* next_beside() const { return static_cast<PlannedFetch*>(beside); }
    std::uint64_t bytes = 0;
    std::uint64_t began_ns = 0;  // when the fetch at the origin began
  };

  Prefetcher(cache::FileCache& cache, Options options);
  // Fetches whose files lie one after the other at their origin.
  class Flights {
   public:
    Flights() = default;
    Flights(Flights&& other) noexcept
        : first_(std::exchange(other.first_, nullptr)), last_(other.last_) {}
    Flights(const Flights&) = delete;
    Flights& operator=(const Flights&) = delete;
    ~Flights() {
      while (take_first() != nullptr) {
      }
    }
    bool is_empty() const { return first_ == nullptr; }
    std::uint64_t end() const { return last_->file.place.end(); }
    void add(std::unique_ptr<PlannedFetch> flight);
    std::unique_ptr<PlannedFetch> take_first();
    // Takes all of them, as one fetch.
    std::unique_ptr<PlannedFetch> take_all();

   private:
    PlannedFetch *first_ = nullptr, *last_ = nullptr;
  };
  // The next fetches to begin, counted as one in flight; empty if none may begin.
  Flights next_flights();
  std::size_t count_together() const;
  // The file that waits at this place.
  std::unique_ptr<PlannedFetch> next_flight(std::size_t place);
  bool takes(std::uint32_t reader) const;
  bool is_for_ring_alone() const;
  bool has_room(const PlannedFile& file);
  bool may_use_ring(const PlannedFile& file) const { return options_.use_ring && !file.must_stay; }
  bool is_for_ring(const PlannedFile& file) const {
    return may_use_ring(file) && is_for_ring_alone();
  }
  bool is_now_for_ring(const PlannedFile& file);
  std::uint32_t origin_of(const std::string& path) const;
  IoEngine& engine_for(const std::string& path) const;
  bool make_remote_engine(std::string& why);
  // Passes the fetch on to the origin, because the other nodes do not have the file.
  void ask_origin(std::unique_ptr<PlannedFetch> flight);
  void submit(std::unique_ptr<PlannedFetch> flight);
  void begin(std::unique_ptr<PlannedFetch> flight);
  void begin_all(Flights flights);
  // False: the file needs no fetch, and has been noted as ended.
  bool needs_fetch(PlannedFetch& flight);
  // Watches the record of a fetch that has its place in the ring.
  void watch(const PlannedFetch& flight);
  void published(const PlannedFetch& flight, std::uint64_t bytes);
  // False: the file cannot be put back.
  bool put_back(PlannedFetch& flight);
  bool begin_stop();
  void wait_for_stop(unsigned patience_ms);
  void note_placed(PlannedFetch& flight);
  static void account(const PlannedFile& file, std::uint64_t bytes, bool was_asked) {
    if (file.allowance != nullptr) file.allowance->settle(file.promised_bytes, bytes, was_asked);
  }
  void refuse(const PlannedFile& file, Refused why, int error = 0, std::uint64_t bytes = 0,
              std::uint64_t missing = 0);
  void refuse(PlannedFetch& flight, Refused why, int error = 0) {
    refuse(flight.file, why, error, flight.bytes, flight.bytes);
  }
  bool may_be_large(const PlannedFile& file) const;
  bool is_large(const PlannedFile& file, const cache::FileStat& stat) const;
  // Continues the fetch as that of a large file. False: that is not possible.
  bool hand_on(std::unique_ptr<PlannedFetch>& flight);
  // For a name that the origin does not have as a file, but that may name a range of a file. False:
  // it does not.
  bool hand_on_range(std::unique_ptr<PlannedFetch>& flight, bool& is_wrong);
  void fetch_small(std::unique_ptr<LargeFetch> fetch);
  void declined(PlannedFetch& flight, int reason, bool& waits);
  void settle(std::uint32_t reader);
  void one_has_ended(std::uint32_t reader, std::uint64_t sequence, bool is_last = true);

  cache::FileCache& cache_;
  const Options options_;
  RingWatch watch_;
  std::unique_ptr<IoEngine> engine_;
  // The engine for origins that read a file whole in one open; null: there are none. It uses
  // threads, because a file takes a single call.
  std::unique_ptr<IoEngine> whole_file_engine_;
  // The engine whose threads ask other nodes; null: there are none.
  std::unique_ptr<IoEngine> remote_engine_;
  const CrewPtr<LargeFetcher> large_;
  EventCount own_progress_;
  EventCount* const progress_;
  std::atomic<unsigned> in_flight_{0}, unplaced_{0};
  std::atomic<std::uint64_t> took_ns_{0}, took_fetches_{0};
  std::atomic<std::uint64_t> fetched_{0}, fetched_bytes_{0}, cached_{0}, demanded_{0},
      refused_count_{0}, large_count_{0};

  EventCount stop_over_;
  std::atomic<bool> is_stop_over_{false};
  base::Mutex mutex_;  // guards the rest
  RunAhead run_ahead_;
  std::vector<RefusedFile> refused_;
  unsigned depth_;
  bool is_stopped_ = false, is_blocked_ = false, is_overtaken_ = false;
  bool is_resident_full_ = false;  // the last fetch that ended found no room there
};

}  // namespace cube::prefetch
