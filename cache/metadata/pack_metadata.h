// The metadata of a pack, under the paths of its prefix. Thread safety: as Metadata.
#pragma once

#include "cache/metadata/metadata.h"
#include "cache/pack/pack_mount.h"

namespace cube::cache {

class PackMetadata final : public Metadata {
 public:
  // `pack` must outlive this object.
  explicit PackMetadata(const PackMount& pack) : Metadata(pack.prefix()), pack_(&pack) {}

  base::Result<FileStat> stat(std::string_view key, Follow follow) const override;
  base::Result<std::size_t> real_path(std::string_view key, char* below) const override;
  base::Result<std::size_t> resolve(std::string_view key, char* below) const override;
  base::Result<std::size_t> read_link(std::string_view key, char* target) const override;
  base::Result<Listing*> list(std::string_view key, Follow follow, bool with_names) const override;
  base::Result<base::UniqueFd> open_copy(std::string_view key, int flags) const override;
  Volume volume() const override;

 private:
  const PackMount* pack_;
};

}  // namespace cube::cache
