// The origin of a prefix that is a bucket. open() knows the stat from a listing, and may have the
// gateway put the file into RAM. A file that cannot be served is handed over as a copy, which the
// gateway makes. Thread safety: as Origin.
#pragma once

#include "cache/bucket/bucket.h"
#include "cache/origin/origin.h"

namespace cube::cache {

class ObjectOrigin final : public Origin {
 public:
  // `bucket` must outlive this.
  explicit ObjectOrigin(const Bucket& bucket);

  base::Result<FileStat> stat(std::string_view key, const char* path) const override;
  base::Result<void> open(const OriginOpen& wish, OpenedPlace& place) const override;
  base::Result<Listing*> list(std::string_view key) const override;

 private:
  const Bucket* bucket_;
};

}  // namespace cube::cache
