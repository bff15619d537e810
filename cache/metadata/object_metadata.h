// The metadata of a bucket, under the paths of its prefix. Buckets have no links. Thread safety: as
// Metadata.
#pragma once

#include "cache/bucket/bucket.h"
#include "cache/metadata/metadata.h"

namespace cube::cache {

class ObjectMetadata final : public Metadata {
 public:
  // `bucket` must outlive this object.
  explicit ObjectMetadata(const Bucket& bucket)
      : Metadata(bucket.mount().prefix()), bucket_(&bucket) {}

  base::Result<FileStat> stat(std::string_view key, Follow follow) const override;
  base::Result<std::size_t> real_path(std::string_view key, char* below) const override;
  base::Result<std::size_t> resolve(std::string_view key, char* below) const override;
  base::Result<std::size_t> read_link(std::string_view key, char* target) const override;
  base::Result<Listing*> list(std::string_view key, Follow follow, bool with_names) const override;
  base::Result<base::UniqueFd> open_copy(std::string_view key, int flags) const override;
  Volume volume() const override;

 private:
  const Bucket* bucket_;
};

}  // namespace cube::cache
