// Writes what has come into RAM to the disk, a segment at a time; for a thread in the background, of one process of the node.
// Found through the index, so only what is published and unmarked. Records of the ring, which has them for a moment, are not
// kept. Invariants: a record is written once for each life of the region, or found to be there already. Thread safety: one
// thread. Everything else may go on meanwhile.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "cache/file_cache.h"

namespace cube::cache {

class DiskFlush {
 public:
  // Of a cache that has a disk.
  explicit DiskFlush(FileCache& cache);

  // Writes all that is new until may_go_on() says no. How many records were left; -1: there was nothing new to look at.
  // The errno of what ended it: the rest is for a later pass.
  template <typename MayGoOn>
  base::Result<std::int64_t> pass(MayGoOn&& may_go_on) {
    const std::function<bool()> go_on = [&] { return may_go_on(); };
    if (!collect(go_on)) return -1;
    int error = 0;
    while (has_more() && error == 0 && may_go_on()) error = write_next();
    const std::int64_t left = end_pass();
    if (error != 0) return base::fail(error);
    return left;
  }

 private:
  struct Note {
    std::uint32_t seen = 0;              // SegmentRow::records when it was last written
    std::vector<std::uint64_t> offsets;  // to be written
    std::vector<std::uint64_t> written;  // of a segment that still grows
  };
  bool collect(const std::function<bool()>& may_go_on);
  bool has_more() const { return next_ < notes_.size(); }
  int write_next();  // 0, or an errno
  std::int64_t end_pass();

  FileCache& cache_;
  std::vector<Note> notes_;  // by segment
  std::vector<std::uint32_t> counts_;
  std::size_t next_ = 0;
};

}  // namespace cube::cache
