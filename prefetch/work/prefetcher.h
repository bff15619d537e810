// Prefetcher fetches offered files into the cache, many at a time. It pauses while the cache has no
// room.
//
// An offered file waits in a short queue. Its fetch begins when it leaves the queue, so a program
// that needs a waiting file fetches it itself. A file is put into the resident pool (the segments
// that keep their records) or, if the pool is full, into the ring. While both are full, the next
// file waits. A file that is not fetched is handed back with the reason. Thread safety: any thread
// may call offer, set_depth, pump, counts, is_idle and stop; only one thread may call take_refused
// and take_settled.
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
  int error = 0;  // an errno if `why` is missing or failed
  // If `why` is no_room: the wanted bytes, and how many of these are missing; 0 if unknown.
  std::uint64_t bytes = 0, missing = 0;
};

struct PrefetchCounts {
  std::uint64_t fetched = 0, fetched_bytes = 0;
  std::uint64_t cached = 0;    // files that were in the cache already
  std::uint64_t demanded = 0;  // a program fetched the file first
  std::uint64_t refused = 0;
  std::uint64_t large = 0;  // how many of the fetched and cached files were large
  // Fetches that have not ended: the number of large ones with a known size, the bytes that these
  // still miss, and the number of all others.
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
    std::vector<std::string> prefixes;  // all files below one prefix are on one mount
    bool keep_refused = true;           // whether take_refused() will be called
    // Notified when more files may be offered and when all fetches have ended. Null: the prefetcher
    // uses its own.
    EventCount* progress = nullptr;
  };
  // Returns null on failure; `why` is then the reason.
  static std::unique_ptr<Prefetcher> make(cache::FileCache& cache, Options options,
                                          std::string& why);
  ~Prefetcher();

  // Returns false, and leaves `file` unchanged, if enough files are waiting.
  bool offer(PlannedFile& file);
  bool wants_more();
  // Like wants_more(), but for a file of this reader. While no fetch can begin for lack of room,
  // some files are accepted beyond the limit.
  bool wants_more_of(std::uint32_t reader);
  // Begins as many fetches as allowed. The end of a fetch calls it; call it when anything else
  // might have made room.
  void pump();
  void set_depth(unsigned depth);
  // Call it several times a second: see IoEngine.
  void look_for_hangs() { engine_->look_for_hangs(); }
  // True if no file waits or is under way.
  bool is_idle();
  // The sequence number of the earliest file, in this reader's order, that waits or is under way;
  // not necessarily the file that was offered first. Empty if all have ended.
  std::optional<std::uint64_t> first_unended(std::uint32_t reader);
  // True after a stop has dropped the waiting files, and perhaps also fetches under way.
  bool is_stopped();
  unsigned in_flight() {
    return std::max(in_flight_.load(std::memory_order_relaxed), large_->in_flight());
  }
  // True if the next file waits for room in the ring.
  bool is_blocked();
  // Returns true if two things have happened since the last call: the next file had to wait, and a
  // starved reader fetched files itself that were waiting here. A starved reader has few files in
  // the ring while others have many.
  bool take_starved();
  PrefetchCounts counts();
  // Fetches of whole files from the origin since the last call: their number and their total time.
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
  // the first, because the mount stays busy if the process ends before an io_uring has closed its
  // files.
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
    // One request can serve several fetches, which together count as one in flight. These flags
    // tell whether this fetch is the first or the last fetch of the group.
    bool is_first = true, is_last = true;
    PlannedFetch* next_beside() const { return static_cast<PlannedFetch*>(beside); }
    std::uint64_t bytes = 0;
    std::uint64_t began_ns = 0;  // when the fetch at the origin began
  };

  Prefetcher(cache::FileCache& cache, Options options);
  // A chain of fetches whose files are adjacent at their origin.
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
    // Removes all of them and returns them as one fetch.
    std::unique_ptr<PlannedFetch> take_all();

   private:
    PlannedFetch *first_ = nullptr, *last_ = nullptr;
  };
  // Returns the next fetches to begin, which count as one in flight; empty if none may begin.
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
  // Passes the fetch to the engine of the origin, because no other node has the file.
  void ask_origin(std::unique_ptr<PlannedFetch> flight);
  void submit(std::unique_ptr<PlannedFetch> flight);
  void begin(std::unique_ptr<PlannedFetch> flight);
  void begin_all(Flights flights);
  // Returns false if the file needs no fetch; its end has then been noted.
  bool needs_fetch(PlannedFetch& flight);
  // Tells watch_ about the record of a fetch that has its place in the ring.
  void watch(const PlannedFetch& flight);
  void published(const PlannedFetch& flight, std::uint64_t bytes);
  // Returns false if the file cannot be put back.
  bool put_back(PlannedFetch& flight);
  bool begin_stop();
  void wait_for_stop(unsigned patience_ms);
  Room find_room(PlannedFetch& flight, const cache::FileAtOrigin& file);
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
  // Continues the fetch as the fetch of a large file. Returns false if that is not possible.
  bool hand_on(std::unique_ptr<PlannedFetch>& flight);
  // Handles a name that is not a file of the origin but might name a range of a file. Returns false
  // if it does not name one.
  bool hand_on_range(std::unique_ptr<PlannedFetch>& flight, bool& is_wrong);
  void fetch_small(std::unique_ptr<LargeFetch> fetch);
  void declined(PlannedFetch& flight, int reason, bool& waits);
  void settle(std::uint32_t reader);
  void one_has_ended(std::uint32_t reader, std::uint64_t sequence, bool is_last = true);

  cache::FileCache& cache_;
  const Options options_;
  RingWatch watch_;
  std::unique_ptr<IoEngine> engine_;
  // The engine for origins that read a whole file in one open; null if there are none. It uses
  // threads, because each file takes a single call.
  std::unique_ptr<IoEngine> whole_file_engine_;
  // The engine whose threads ask other nodes; null if there are no other nodes.
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
  bool is_resident_full_ = false;  // the last fetch to end found no room there
};

}  // namespace cube::prefetch
