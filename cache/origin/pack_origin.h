// The origin of a prefix that is a pack. One read returns a file's stat and bytes, and may fetch
// its neighbours in the pack, too. If the pack lacks a path (ENOENT), the caller must ask the
// kernel. If a file cannot be served, the program gets a copy of it. Thread safety: as Origin.
#pragma once

#include <memory>

#include "cache/origin/origin.h"
#include "cache/pack/pack_mount.h"

namespace cube::cache {

class PackOrigin final : public Origin {
 public:
  // `pack` must outlive this object.
  explicit PackOrigin(const PackMount& pack);

  base::Result<FileStat> stat(std::string_view key, const char* path) const override;
  base::Result<void> open(const OriginOpen& wish, OpenedPlace& place) const override;
  OriginSpan place_of(std::string_view key) const override;
  base::Result<Listing*> list(std::string_view key) const override;

 private:
  const PackMount* pack_;
};

}  // namespace cube::cache
