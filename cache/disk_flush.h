// Writes what has come into RAM to the disk, a segment at a time; for a thread in the background, of one process of the node.
// Only what the index names is written, and confirmed, and unmarked. A segment of the ring is held meanwhile, and may be used
// anew afterwards (Ring::is_awaited), so these come first. Invariants: a record is written once for each life of its segment, or
// found to be there already; after a pass that gave an error nobody waits for the disk. Thread safety: one thread. Everything
// else may go on meanwhile.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "cache/file_cache.h"

namespace cube::cache {

class DiskFlush {
 public:
  // For a cache that has a disk.
  explicit DiskFlush(FileCache& cache) : cache_(cache), notes_(cache.region().layout().segment_count) {}

  // Writes all that is new until may_go_on() says no. How many records were left; the errno of what ended it: the rest is for a
  // later pass. Nothing is pinned after the time is over: the process may have given its row of pins to another by then.
  base::Result<std::int64_t> pass(const std::function<bool()>& may_go_on);
  // Nobody shall wait for this one any more.
  void end();

 private:
  struct Note {
    std::uint32_t generation = 0;        // of the segment; another one is another life
    std::uint32_t seen = 0;              // SegmentRow::fresh when it was last written
    std::vector<std::uint64_t> written;  // offsets, while it still grows
  };
  bool has_news(std::uint32_t segment) const;
  int write_all(bool of_ring, const std::function<bool()>& may_go_on);
  int write(std::uint32_t segment);  // 0, or an errno
  void say_alive();

  FileCache& cache_;
  std::vector<Note> notes_;  // by segment
  bool has_failed_ = false;  // the last pass
};

}  // namespace cube::cache
