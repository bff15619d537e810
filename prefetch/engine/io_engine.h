// The seam between what is to be fetched and how: an engine fetches whole files in the background,
// many at a time, and asks its client for the room to put each of them.
//
// A fetch: open, statx by fd, room_for() of the client, one read of a byte more than the size, a
// second statx by the server's word where the client asked for one, ended(), close. Special files
// are never read and never waited for.
//
// Any thread may call submit, set_depth, cancel_waiting, drain and stop, but stop only once. The
// client is called on the engine's threads: for one fetch never by two at a time, for several
// fetches at the same time (threads) or one after the other (io_uring); by cancel_waiting() and
// stop(), also on the caller's thread. A client must not call drain or stop from within.
//
// Each fetch that was submitted ends exactly once, by ended(). From then on engine and kernel no
// longer know the Fetch, its path or its room - with one exception: a fetch that hangs in the
// kernel when stop() loses patience ends as `abandoned`, and if `room_is_lost` is set, the kernel
// may still write into its room at any time until the process is gone; that room must never be used
// for anything else, nor be unmapped. After stop() has returned no client function runs or will
// run.
//
// File descriptors: the engine's threads have an fd table of their own. The host never sees an fd
// of the engine's, and whatever it closes or dup2s does not touch them. So a client function that
// is called there finds none of the host's fds, stderr included; and /proc/self/fd is the host's
// table there too, the thread's own is /proc/thread-self/fd.
//
// A forked child has no engine: its copy ends what is submitted as cancelled, and everything else
// does nothing.
#pragma once

#include <cstdint>
#include <optional>

#include "cache/origin/origin.h"

namespace cube::cache {
class Origins;
}

namespace cube::prefetch {

// Owned by the client, from submit() to ended() at the same place.
struct Fetch {
  const char* path = nullptr;  // absolute
  std::uint32_t origin =
      0;  // files of one mount have the same number; engine_choice.h learns for each
  bool asks_first = false;  // an engine of threads asks its client before it opens the file

  // Others that lie behind it in the origin, of an engine of threads: all of `together` is read by
  // one request, and each is ended in its turn. A file that is not there is fetched alone.
  Fetch* beside = nullptr;
  cache::OriginSpan place,
      together;  // its own place; together: of the first one, empty where there are no others

  Fetch* next = nullptr;  // the engine's
};

enum class Ending : std::uint8_t {
  whole,      // the room holds the file as its stat said
  declined,   // by room_for
  failed,     // `error` is the kernel's
  changed,    // not what its stat said: grown, truncated, or written meanwhile
  cancelled,  // not begun, or given up between two system calls
  abandoned,  // see above
};

struct FetchResult {
  Ending ending = Ending::cancelled;
  bool has_room = false;      // room_for gave room; it is the client's again, unless
  bool room_is_lost = false;  // (see above)
  // The number of requests to the origin.
  std::uint8_t opens = 0, stats = 0, reads = 0;
  int error = 0;   // of failed
  int reason = 0;  // of declined, as the client gave it
  std::uint64_t bytes = 0;
  std::optional<std::uint64_t> data_hash =
      {};  // of whole, if the origin has checked the bytes by it
};

struct Room {
  std::byte* data = nullptr;
  int reason = 0;
  bool is_given = false;
  bool look_again = false;

  // Room for all the bytes of the stat. With `look_again` the file is asked for its stat once more
  // after the read.
  static Room give(std::byte* data, bool look_again) { return {data, 0, true, look_again}; }
  static Room decline(int reason) { return {nullptr, reason, false, false}; }
};

class FetchClient {
 public:
  // The client's answer to a fetch that asks first. `looked`: the stat of the path, a link at its
  // end not followed; null: the origin was not asked yet. `decline` ends the fetch with this
  // reason.
  struct First {
    enum class Do : std::uint8_t { open, look, decline };
    Do what = Do::open;
    int reason = 0;
  };
  virtual First before_open(Fetch& /*fetch*/, const base::Result<cache::FileStat>* /*looked*/) {
    return {};
  }
  // Only regular files are worth room; what else has been opened (directories too) shows in the
  // stat.
  virtual Room room_for(Fetch& fetch, const cache::FileAtOrigin& file) = 0;
  virtual void ended(Fetch& fetch, const FetchResult& result) = 0;

 protected:
  ~FetchClient() = default;
};

struct EngineOptions {
  unsigned depth = 64;      // most fetches in flight
  int nice = 5;             // added to the niceness of the engine's threads
  unsigned idle_ms = 1000;  // threads that have had nothing to do for so long end
  // A ring that is stopped waits so long for what it has abandoned to be closed: the kernel would
  // do that after the process.
  unsigned give_back_ms = 250;
  std::size_t stack = 128 << 10;
  // For threads only; null: all files are on mounts. The engine opens the origins anew in its own
  // fd table. A file of an origin that is read whole by its open is read before its room is asked
  // for.
  const cache::Origins* origins = nullptr;
  std::uint64_t max_file = 0;  // bytes: a larger file of such an origin is not read
};
inline constexpr unsigned k_most_depth = 256;

class IoEngine {
 public:
  virtual ~IoEngine() = default;  // stops, and waits no longer than 50 ms for what hangs
  virtual const char* name() const = 0;
  // The name of the engine that fetches for this origin, if there is a choice; by any thread.
  virtual const char* name_for(std::uint32_t /*origin*/) const { return name(); }

  virtual void submit(Fetch& fetch) = 0;
  // From 1 to k_most_depth. Fetches in flight go on.
  virtual void set_depth(unsigned depth) = 0;
  // Ends what has not been begun as cancelled.
  virtual void cancel_waiting() = 0;
  // Until all that was submitted has ended and its files are closed.
  virtual void drain() = 0;
  // Cancels what waits, ends what is in flight as soon as it comes back, and after `patience_ms`
  // abandons the rest; says how many were abandoned. A fetch that is submitted later is cancelled.
  virtual unsigned stop(unsigned patience_ms) = 0;
};

}  // namespace cube::prefetch
