// The seam between what is to be fetched next and who fetches it: a list, what the job announces, a
// directory it has listed. Thread safety: one thread calls next() and settled(); what feeds a
// source is the source's own business.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cache/origin/origin_span.h"
#include "prefetch/order/allowance.h"
#include "prefetch/order/named_range.h"

namespace cube::prefetch {

struct PlannedFile {
  std::string path;  // absolute and normalised, within a prefix
  std::uint32_t reader =
      0;  // whose order it belongs to: a rank of a job, or 0 where there is but one order
  bool must_stay = false;  // not worth fetching where only the ring has room
  std::uint64_t sequence =
      0;  // grows with every file of one reader, who opens them about in this order
  // For a source that may have no more than so many bytes fetched: the account, the promised part
  // of it, and the most that this file may have.
  std::shared_ptr<Allowance> allowance = nullptr;
  std::uint64_t promised_bytes = 0, most_bytes = UINT64_MAX;
  // What is wanted of it, if it is a large file. A path that ends in a range keeps it until the
  // origin has no file of that name.
  ByteRange range = {};
  cache::OriginSpan place = {};  // at its origin; the prefetcher's
};

class PathSource {
 public:
  virtual ~PathSource() = default;
  // none_yet: there may be one later. end: there never will.
  enum class Next : std::uint8_t { file, none_yet, end };
  virtual Next next(PlannedFile& file) = 0;
  // So many files of this reader that next() gave are read, dropped, or not fetched after all: he
  // is so much less ahead.
  virtual void settled(std::uint32_t /*reader*/, std::uint32_t /*files*/) {}
  // The reader will not read the paths below this sequence number that next() gave: it has left the
  // epoch, or gone.
  virtual std::uint64_t passed(std::uint32_t /*reader*/) { return 0; }
};

}  // namespace cube::prefetch
