// The metadata of all prefixes whose files the kernel does not have, which are packs and buckets.
// Thread safety: immutable after make(), which allocates.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "cache/metadata/metadata.h"
#include "cache/origin/origins.h"

namespace cube::cache {

class AllMetadata {
 public:
  // The origins must outlive the result. Null: no prefix is a pack or a bucket, so the kernel has
  // all metadata (the usual case).
  static std::unique_ptr<AllMetadata> make(const Origins& origins);

  // The metadata of the prefix that covers the key. Null: only the kernel can answer.
  const Metadata* of(std::string_view key) const {
    for (const auto& metadata : all_) {
      if (metadata->covers(key)) return metadata.get();
    }
    return nullptr;
  }

 private:
  // Adds the metadata of a prefix, and takes ownership of it.
  void add(const Metadata* metadata);

  // Sorted by prefix, longest first, because the innermost prefix must answer.
  std::vector<std::unique_ptr<const Metadata>> all_;
};

}  // namespace cube::cache
