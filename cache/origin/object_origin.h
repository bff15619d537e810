// The origin of a prefix that is a bucket. open() takes the stat from a listing, and may make the
// gateway put the file into RAM. Large files are fetched in blocks. If a file cannot be served, the
// program gets a copy of it from the gateway. Thread safety: as Origin.
#pragma once

#include "cache/bucket/bucket.h"
#include "cache/origin/origin.h"

namespace cube::cache {

class ObjectOrigin final : public Origin {
 public:
  // `bucket` must outlive this object.
  explicit ObjectOrigin(const Bucket& bucket);

  base::Result<FileStat> stat(std::string_view key, const char* path) const override;
  base::Result<FileStat> revalidate(std::string_view key, const char* path,
                                    const FileStat& known) const override;
  base::Result<void> open(const OriginOpen& wish, OpenedPlace& place) const override;
  int fetch_blocks(std::string_view key, const FileStat& stat, std::uint64_t begin,
                   std::uint64_t end, std::uint64_t ahead_end) const override;
  base::Result<base::UniqueFd> copy_of(std::string_view key, const FileStat& stat,
                                       int flags) const override;
  base::Result<Listing*> list(std::string_view key) const override;

 private:
  const Bucket* bucket_;
};

}  // namespace cube::cache
