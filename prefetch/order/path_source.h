// The interface between the prefetcher and the order of its fetches: a source returns the files to
// fetch next, from a list, from the job's announcements, or from a directory that the job has
// listed. Thread safety: one thread calls next() and settled(); each source itself protects the
// data that other threads give it.
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
  // The reader whose order contains the file: a rank of a job, or 0 if there is only one order.
  std::uint32_t reader = 0;
  bool must_stay = false;  // do not fetch the file if only the ring has room
  // Grows with every file of one reader. The reader opens its files roughly in this order.
  std::uint64_t sequence = 0;
  // Set if the source has an allowance: the account, the bytes promised for this file, and the
  // maximum size of the file.
  std::shared_ptr<Allowance> allowance = nullptr;
  std::uint64_t promised_bytes = 0, most_bytes = UINT64_MAX;
  // The wanted part, if the file is large. If `path` ends in a range, the range stays in `path`
  // until the origin turns out to have no file of that name.
  ByteRange range = {};
  cache::OriginSpan place = {};  // the place at the origin, which the prefetcher sets
};

// How many files of a reader no longer count as ahead of the reader, because they were read,
// dropped, or not fetched after all.
struct Settled {
  std::uint32_t reader = 0, files = 0;
};

class PathSource {
 public:
  virtual ~PathSource() = default;
  // none_yet: there is no file now, but maybe later. end: there will be no more files.
  enum class Next : std::uint8_t { file, none_yet, end };
  virtual Next next(PlannedFile& file) = 0;
  // Reports that files from next() are settled; see Settled.
  virtual void settled(std::uint32_t /*reader*/, std::uint32_t /*files*/) {}
  // The reader will read no path from next() whose sequence number is below this one, because it
  // has left the epoch of these paths or has ended.
  virtual std::uint64_t passed(std::uint32_t /*reader*/) { return 0; }
};

}  // namespace cube::prefetch
