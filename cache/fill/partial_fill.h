// A fetch of a file in parts, while the program reads the file. The program gets the fd as soon as
// the file is accepted. Each part is fetched when the program reads it. No thread is needed. A file
// has up to 256 parts. A reader claims the parts of its read that no other reader has claimed, and
// fetches them through its own fd, which is the origin's file. If another reader is fetching a
// part, the reader waits for the part, but at most a second; after that, the kernel answers the
// read. The reader that fetches the last part revalidates the file and publishes the record.
// Objects live in a static pool of the process. Thread-safe, and lock-free except for waiting and
// publishing; async-signal-safe. A signal handler that interrupts a fetch does not fetch or wait.
// Invariants: the record lies in its room from the beginning, but is marked as unconfirmed, so that
// lookups do not find it. Publishing clears the mark. If a reader dies or jumps out of its fetch,
// its parts stay under way, and the record is never published. The bytes of a read are used only if
// the fd referred to the file during the whole read (fd_epoch.h).
#pragma once

#include <algorithm>

#include "cache/base/hash.h"
#include "cache/fill/cache_parts.h"
#include "cache/fill/fd_epoch.h"
#include "cache/fill/record_fill.h"
#include "cache/region/single_flight.h"

namespace cube::cache {

class PartialFill {
 public:
  static constexpr std::uint64_t k_least_part = 64 << 10;
  static constexpr std::uint32_t k_most_parts = 256;

  // The place of the bytes that a read needs.
  enum class Bytes {
    here,        // in the room
    at_origin,   // not in the room; the program can read them through its fd
    interrupted  // the read failed with EINTR, which the program gets
  };

  // Takes over an accepted fetch and its flight. Null: there are too many fills, so the caller
  // keeps the fetch and the flight.
  static PartialFill* begin(CacheParts& parts, RecordFill& fetch, SingleFlight::Ticket& flight);
  // Whether this process may be fetching a file of this path in parts.
  static bool may_be_coming(std::uint64_t hash_of_path);
  // Adds a user to this process's fill of this version of the file. Null: there is no such fill.
  static PartialFill* join(std::string_view path, std::uint64_t hash_of_path, const FileStat& stat);

  const Record& record() const { return *record_; }
  // A new pin on the record.
  Pin pin() const { return pin_.duplicate(); }
  // Whether the fill is still running, and the file has not been changed through the shim.
  bool goes_on() const { return is_under_way() && fetch().is_unchanged(); }

  // Fetches the bytes [at, at + n) through this fd. The bytes must lie within the file.
  Bytes bring(const FdEpoch& fd, std::uint64_t at, std::uint64_t n);
  // Fetches the whole file.
  Bytes bring_all(const FdEpoch& fd);
  // Called when a user closes its last fd. Does nothing if there are other users. If the file is
  // nearly whole, or if its room could not be given back, fetches the rest. Otherwise keeps the
  // parts for the next open (kept_parts.h). If parts cannot be kept, because files are not served
  // in blocks, the second close fetches the rest.
  void finish_at_close(int fd);
  // Ends the fill. From now on, the program reads only from the origin's file.
  void give_up();
  // Removes a user. The removal of the last user frees the object.
  void end();

  // Call give_up_all at the end of the process. Call forget_all in a forked child, because the
  // fills belong to the parent.
  static void give_up_all();
  static void forget_all();

 private:
  // `claimed`: one thread publishes the record, or uses its room at a close. No other thread may
  // publish meanwhile.
  enum class State : std::uint32_t { free, making, open, claimed, published, given_up };
  // `overdue`: the part is under way, and a reader has given up waiting for it.
  enum class Part : std::uint8_t { missing, under_way, overdue, here };
  // Whether the kernel keeps pages of the file. `kept`: the kernel reads ahead while the program
  // works. `none`: more parts are read at a time. `secret`: the kernel does not report whether it
  // keeps pages.
  enum class Pages : std::uint8_t { unknown, kept, none, secret };

  std::uint64_t read_ahead(int fd, std::uint64_t at, std::uint64_t end);
  void look_for_pages(int fd);
  bool may_have_kept() const;
  void take_kept();
  void drop_kept();
  void keep(int fd);
  Bytes bring_parts(const FdEpoch& fd, std::uint32_t first, std::uint32_t end);
  std::uint32_t take_parts(std::uint32_t first, std::uint32_t end);
  void mark(std::uint32_t first, std::uint32_t end, Part as);
  bool wait_for(std::uint32_t part);
  bool has_any_part(std::uint64_t at, std::uint64_t n) const;
  long read_parts(int fd, std::uint64_t from, std::uint64_t to);
  void hash_parts(std::uint64_t from, std::uint64_t to);
  bool is_unchanged(int fd, int flags) const;  // `flags` are those of stat_fd
  bool may_go_on(const FdEpoch& fd) const {
    return fd.goes_on() && !has_ended_.load(std::memory_order_seq_cst);
  }
  void note_read() const;
  // While a thread has the claim, no other thread publishes. A caller of end_claim() blocks signals
  // from before claim() on, so that no handler can jump out of the claim.
  bool claim();
  void end_claim(int fd);
  void publish(const FdEpoch& fd);
  std::uint64_t begin_of(std::uint32_t part) const { return std::min(part * part_bytes_, size()); }
  bool is_under_way() const {
    const State state = state_.load(std::memory_order_acquire);
    return state == State::open || state == State::claimed;
  }
  std::uint64_t size() const { return record_->data_size; }
  RecordFill& fetch() { return *reinterpret_cast<RecordFill*>(fetch_); }
  const RecordFill& fetch() const { return *reinterpret_cast<const RecordFill*>(fetch_); }

  alignas(64) std::byte hasher_[sizeof(base::Hasher)];
  std::atomic<State> state_{State::free};
  std::atomic<std::uint32_t> users_{0};
  std::atomic<std::uint32_t> missing_{0};  // the number of parts that are not `here`
  // A futex that counts how often fetches of parts have ended. A waiter increments waiters_ before
  // it loads marks_.
  std::atomic<std::uint32_t> marks_{0};
  std::atomic<std::uint32_t> waiters_{0};  // too high if a jump has left a wait
  std::uint32_t part_count_ = 0;
  // Set when the fill is given up, even if it is being published. Reads that are still running are
  // then discarded, because their FdEpoch no longer detects that the fd was closed.
  std::atomic<bool> has_ended_{false};
  std::atomic<bool> hashing_{false};
  std::atomic<bool> has_read_{false};         // a part has come from the origin
  std::atomic<Pages> pages_{Pages::unknown};  // affects only speed
  std::atomic<std::uint64_t> shown_{0};       // the end of the furthest read
  // The next three members affect only speed.
  std::atomic<std::uint64_t> next_{0};   // the end of the last read
  std::atomic<std::uint64_t> ahead_{0};  // up to here, parts or kernel pages were read ahead
  std::atomic<std::uint64_t> window_{0};
  std::atomic<Part> parts_[k_most_parts]{};
  std::uint64_t part_bytes_ = 0;
  std::atomic<std::uint64_t> hash_of_path_{0};
  std::uint64_t hashed_ = 0;  // the file is hashed up to here; guarded by hashing_
  CacheParts* cache_ = nullptr;
  const Record* record_ = nullptr;
  Pin pin_;
  SingleFlight::Hold flight_;
  alignas(RecordFill) std::byte fetch_[sizeof(RecordFill)];
};

}  // namespace cube::cache
