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
  // The reader whose order it belongs to: a rank of a job, or 0 if there is only one order.
  std::uint32_t reader = 0;
  bool must_stay = false;  // the file is not worth fetching if only the ring has room
  // Grows with every file of one reader, which opens its files roughly in this order.
  std::uint64_t sequence = 0;
  // Set if the source has an allowance: the account, the bytes promised for this file, and the most
  // bytes that it may have.
  std::shared_ptr<Allowance> allowance = nullptr;
  std::uint64_t promised_bytes = 0, most_bytes = UINT64_MAX;
  // The wanted part, if it is a large file. A path that ends in a range keeps the range until the
  // origin turns out to have no file of that name.
  ByteRange range = {};
  cache::OriginSpan place = {};  // the place at the origin, which the prefetcher sets
};

// How many files of the reader were read, dropped, or not fetched after all, and so no longer count
// as ahead of the reader.
struct Settled {
  std::uint32_t reader = 0, files = 0;
};

class PathSource {
 public:
  virtual ~PathSource() = default;
  // none_yet: there may be one later. end: there will never be one.
  enum class Next : std::uint8_t { file, none_yet, end };
  virtual Next next(PlannedFile& file) = 0;
  // Reports files that next() gave; see Settled.
  virtual void settled(std::uint32_t /*reader*/, std::uint32_t /*files*/) {}
  // The sequence number below which the reader will read no more of the paths that next() returned,
  // because it has left their epoch or ended.
  virtual std::uint64_t passed(std::uint32_t /*reader*/) { return 0; }
};

}  // namespace cube::prefetch
