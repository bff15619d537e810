// RunAhead bounds how far prefetching runs ahead of the readers. It holds the planned files that
// wait for their fetch. For each reader, it counts the files whose fetch has begun and that are not
// yet read, dropped or refused. If room is scarce, the reader with the lowest count is served
// first, so a stalled reader does not hold up others. The fetch of a file for the ring begins only
// if the ring has room for an average record beyond the room promised to other fetches. Thread
// safety: none; the owner's lock guards it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "cache/fetch_ahead.h"
#include "prefetch/order/path_source.h"

namespace cube::prefetch {

class RunAhead {
 public:
  explicit RunAhead(cache::FetchAhead& ahead) : ahead_(ahead) {}

  // Each reader's files in order.
  std::deque<PlannedFile>& waiting() { return waiting_; }
  const std::deque<PlannedFile>& waiting() const { return waiting_; }
  bool is_full() const { return waiting_.size() >= k_most; }
  bool is_running_low() const { return waiting_.size() < k_most / 2; }
  // Returns true if a file of this reader should be added although the queue is full, because other
  // readers' files fill the queue and none of them can begin.
  bool takes_beyond(std::uint32_t reader) const;
  // Throws std::bad_alloc if there is no memory, like put_back() and settle().
  void add(PlannedFile& file);
  // The place of the file to begin next if room is scarce. The queue must not be empty.
  std::size_t first_of_least_ahead() const;
  // Notes that the fetch of the file at this place has begun. The caller has already moved the file
  // out.
  void begin(std::size_t place, std::uint32_t reader);
  // Puts back a file whose fetch had begun but must wait after all. The file is placed in front of
  // its reader's later files.
  void put_back(PlannedFile& file);
  // Notes that a fetch has ended. Its file counts as ahead of the reader until it is settled.
  void end(std::uint32_t reader, std::uint64_t sequence);
  // Drops all waiting files.
  void clear();
  // Files that wait or have begun.
  std::size_t unended() const { return unended_.size(); }
  std::optional<std::uint64_t> first_unended(std::uint32_t reader) const;

  // Notes that this many files whose fetch had begun were read, dropped or refused.
  void settle(std::uint32_t reader, std::uint32_t files);
  // Returns what was settled since the last call.
  std::vector<Settled> take_settled();
  // True if another reader is more than twice as far ahead.
  bool is_far_behind(std::uint32_t reader);

  // Promises room for one record. Returns false if there is no room. `unasked`: the number of
  // fetches that were promised room but have not asked for it yet, because the size of their file
  // is not known. After note_no_room(), the result stays false until there is more room than at
  // that time, or until a pause is over. Times are those of base::monotonic_ns().
  bool take_room(unsigned unasked, std::uint64_t now_ns);
  // Notes that a record of this many bytes was placed, in the ring or elsewhere.
  void note_placed(std::uint64_t bytes);
  // Notes that a file of this many bytes found no room.
  void note_no_room(std::uint64_t bytes, std::uint64_t now_ns);

 private:
  static constexpr std::size_t k_most = 256, k_of_each_beyond = 64;
  // How long to wait before a retry even if the ring has no more room than before, because the
  // cause may be a lack of memory.
  static constexpr std::uint64_t k_first_pause_ns = 1'000'000, k_longest_pause_ns = 500'000'000;
  struct Reader {
    std::uint64_t waiting = 0, ahead = 0;
    std::uint32_t settled = 0;
  };
  // Larger files are not put into the ring, because the ring must not wait for that much room.
  std::uint64_t most_bytes() const { return ahead_.segment_bytes() / 4; }

  cache::FetchAhead& ahead_;
  std::deque<PlannedFile> waiting_;
  std::map<std::uint32_t, Reader> readers_;
  std::multiset<std::pair<std::uint32_t, std::uint64_t>> unended_;  // reader, sequence
  std::uint64_t credit_ = 0;                                        // bytes that may be promised
  std::uint64_t average_ = 64 << 10;                                // bytes of an average record
  std::uint64_t pause_ns_ = k_first_pause_ns, not_before_ns_ = 0, room_then_ = 0;
};

}  // namespace cube::prefetch
