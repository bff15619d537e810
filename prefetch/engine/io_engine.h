// The interface of an engine. An engine fetches whole files in the background, many at a time, and
// knows how to fetch. Its client knows which files to fetch, and provides the room for each file.
//
// A fetch takes these steps: open; statx by fd; the client's room_for(); a read of one byte more
// than the size; a second statx that asks the server, if the client requests it; ended(); close.
// Special files are never read, and the engine never waits for one.
//
// Each submitted fetch ends exactly once, by ended(). After ended(), neither engine nor kernel
// refers to the Fetch, its path or its room, with one exception: a fetch that still hangs in the
// kernel at the end of stop()'s patience ends as `abandoned`. If such a fetch has `room_is_lost`
// set, the kernel can still write to its room until the process ends, so the room must never be
// reused or unmapped. After stop() has returned, no client function runs or will run.
//
// Thread safety: any thread may call any function, but stop may be called only once. The engine
// calls its client on its own threads, and from cancel_waiting() and stop() also on the caller's
// thread. At most one call for a given fetch runs at a time. Calls for different fetches run
// concurrently in the thread engine, and one after the other in the io_uring engine. A client must
// not call drain or stop from within a callback.
//
// File descriptors: the engine's threads have their own fd table. The host never sees an engine's
// fd, and no close or dup2 of the host affects an engine's fd. A client function that runs on such
// a thread therefore has none of the host's fds, stderr included. On such a thread, /proc/self/fd
// still shows the host's table; /proc/thread-self/fd shows the thread's own table.
//
// A forked child has no engine: its copy ends submitted fetches as cancelled, and its other
// functions do nothing.
#pragma once

#include <cstdint>
#include <optional>

#include "cache/origin/origin.h"

namespace cube::cache {
class Origins;
}

namespace cube::prefetch {

// Owned by the client. It must not move between submit() and ended().
struct Fetch {
  const char* path = nullptr;  // absolute
  // The number of the file's mount. The best engine is learned for each number (engine_choice.h).
  std::uint32_t origin = 0;
  bool asks_first = false;  // a thread engine calls before_open()
  // If the stat of the path says that the file is larger than this, the file is not opened.
  // room_for() is called with that stat, and must decline.
  std::uint64_t most_opened = UINT64_MAX;

  // The next of a chain of fetches whose bytes are adjacent in the origin, for a thread engine. One
  // request reads all of `together`, and the engine ends each fetch in turn. If one of these files
  // is missing, each file is fetched alone.
  Fetch* beside = nullptr;
  // `place`: this file's own bytes. `together`: the bytes of the whole chain, set in its first
  // fetch; empty if there is no chain.
  cache::OriginSpan place, together;

  Fetch* next = nullptr;  // used by the engine
};

enum class Ending : std::uint8_t {
  whole,      // the room, or RAM (Room::by_origin), holds the file that its stat described
  declined,   // by room_for
  failed,     // `error` comes from the kernel
  changed,    // the file does not match its stat: grown, truncated, or written during the fetch
  cancelled,  // the fetch did not begin, or was given up between two system calls
  abandoned,  // still hung at the end of stop()'s patience; see above
};

struct FetchResult {
  Ending ending = Ending::cancelled;
  bool has_room = false;      // room_for() gave room; it is the client's again
  bool room_is_lost = false;  // see above
  // The number of requests to the origin.
  std::uint8_t opens = 0, stats = 0, reads = 0;
  int error = 0;   // if failed
  int reason = 0;  // the client's reason, if it has declined
  std::uint64_t bytes = 0;
  bool is_counted_elsewhere = false;  // Origin::Traits
  // The hash by which the origin has checked the bytes of a whole file; empty if the origin has not
  // checked them.
  std::optional<std::uint64_t> data_hash = {};
};

struct Room {
  std::byte* data = nullptr;
  int reason = 0;
  bool is_given = false;
  bool look_again = false;
  bool is_by_origin = false;

  // Returns room for all bytes of the file; its stat says how many. If `look_again` is set, the
  // engine revalidates the stat after the read.
  static Room give(std::byte* data, bool look_again) { return {data, 0, true, look_again}; }
  static Room decline(int reason) { return {nullptr, reason, false, false}; }
  // The origin itself puts the file into RAM (OriginOpen::is_ahead). If RAM has no room for the
  // file, the fetch is declined with the reason `if_full`.
  static Room by_origin(int if_full) { return {nullptr, if_full, false, false, true}; }
};

class FetchClient {
 public:
  // The client's answer to a fetch with `asks_first`. `looked` is the stat of the path, without
  // following a final link, or null if the origin was not asked yet. `decline` ends the fetch with
  // this reason.
  struct First {
    enum class Do : std::uint8_t { open, look, decline };
    Do what = Do::open;
    int reason = 0;
  };
  virtual First before_open(Fetch& /*fetch*/, const base::Result<cache::FileStat>* /*looked*/) {
    return {};
  }
  // Returns room only if the stat shows a regular file: a directory, for instance, can be opened in
  // place of a file.
  virtual Room room_for(Fetch& fetch, const cache::FileAtOrigin& file) = 0;
  virtual void ended(Fetch& fetch, const FetchResult& result) = 0;

 protected:
  ~FetchClient() = default;
};

struct EngineOptions {
  unsigned depth = 64;      // most fetches in flight
  int nice = 5;             // added to the niceness of the engine's threads
  unsigned idle_ms = 1000;  // a thread ends when idle for this long
  // How long a stopped ring waits for its abandoned files to be closed. Without the wait, the
  // kernel would close these files only after the end of the process.
  unsigned give_back_ms = 250;
  std::size_t stack = 128 << 10;
  // For the thread engine only; null if all files are on mounts. The engine reopens the origins in
  // its own fd table. If an origin reads a whole file in one open, the engine reads the file before
  // it calls room_for().
  const cache::Origins* origins = nullptr;
  std::uint64_t max_file = 0;  // in bytes; larger files of such an origin are not read
};
inline constexpr unsigned k_most_depth = 256;

class IoEngine {
 public:
  virtual ~IoEngine() = default;  // stops, and waits at most 50 ms for hung fetches
  virtual const char* name() const = 0;
  // The name of the engine that was chosen for this origin; name() if there is no choice. Callable
  // by any thread.
  virtual const char* name_for(std::uint32_t /*origin*/) const { return name(); }

  virtual void submit(Fetch& fetch) = 0;
  // If fetches hang, submits those that the engine holds back until they end. Call it several times
  // a second.
  virtual void look_for_hangs() {}
  // `depth` is 1 to k_most_depth. Fetches in flight continue.
  virtual void set_depth(unsigned depth) = 0;
  // Ends all fetches that have not begun; their ending is `cancelled`.
  virtual void cancel_waiting() = 0;
  // Waits until every submitted fetch has ended and its file is closed.
  virtual void drain() = 0;
  // Cancels waiting fetches, ends fetches in flight as soon as they return, and abandons the rest
  // after `patience_ms`. Returns how many were abandoned. A fetch that is submitted later is
  // cancelled.
  virtual unsigned stop(unsigned patience_ms) = 0;
};

}  // namespace cube::prefetch
