// A fetch of one object into RAM. Thread safety: one thread.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cache/bucket/bucket_mount.h"
#include "cache/fill/cache_parts.h"
#include "cache/fill/record_fill.h"
#include "prefetch/object/s3/client.h"

namespace cube::prefetch {

class ObjectFill {
 public:
  // Construct an ObjectFill before requesting the object. `parts` must outlive it.
  ObjectFill(cache::CacheParts& parts, cache::BucketMount mount, std::string below,
             cache::Lane lane);

  // Makes room for the version that was listed, so that no object is requested without room for it.
  // Returns 0, EFBIG or ENOSPC, or EEXIST if RAM already has the object.
  int prepare(const cache::ObjectInfo& object);
  // Call it with each head that has a size, including retries. On success, returns 0 and provides
  // room for the bytes. Otherwise returns EFBIG or ENOSPC, or another error if RAM already has the
  // object; in the last case, end() returns 0.
  int begin(const s3::Outcome& head, s3::Transfer::Room& room);
  // Call it when all bytes have arrived. Returns 0 if RAM has the object afterwards.
  int end(const s3::Outcome& outcome);

 private:
  void forget_listing_unless(const cache::ObjectInfo& object) const;

  cache::CacheParts& parts_;
  const cache::BucketMount mount_;
  const std::string below_, key_;
  const cache::Lane lane_;
  std::unique_ptr<cache::RecordFill> fill_;
  std::optional<cache::ObjectInfo> accepted_;  // the version for which fill_ has room
  bool is_there_ = false;
};

}  // namespace cube::prefetch
