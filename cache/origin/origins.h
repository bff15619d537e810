// All origins of a process: the packs of CUBESHIM_PACKS and the buckets of CUBESHIM_BUCKETS at
// their prefixes, and the mounts everywhere else. Thread safety: immutable after construction.
// open() and reopened() allocate.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cache/base/settings/config.h"
#include "cache/origin/mount_origin.h"
#include "cache/origin/object_origin.h"
#include "cache/origin/pack_origin.h"

namespace cube::cache {

class Origins {
 public:
  // The variable that lists the packs.
  static constexpr const char* k_variable = "CUBESHIM_PACKS";
  // Replaces relative paths of packs by absolute paths, for processes that start in another
  // directory. A relative path starts at `directory`. Returns the new value of the variable. Empty:
  // `directory` contains a colon, which would change the meaning of the value.
  static std::string make_absolute(std::vector<base::OriginSetting>& settings,
                                   std::string_view directory);
  // Opens the buckets, and all packs that can be opened. For each other pack, adds a sentence to
  // `errors`.
  static std::unique_ptr<Origins> open(const std::vector<base::OriginSetting>& packs,
                                       const std::vector<base::OriginSetting>& buckets,
                                       std::vector<std::string>& errors);
  // Opens the same origins again, for threads with their own fd table, where the fds of this object
  // are not valid. Only such a thread may call this function and use the result. If the path of a
  // pack now names another file, the pack is left out.
  std::unique_ptr<Origins> reopened() const;

  const Origin& of(std::string_view path) const {
    for (const auto& place : places_) {
      if (base::is_at_or_below(path, place.prefix)) return *place.origin;
    }
    return mount_origin();
  }
  bool has_only_mounts() const { return places_.empty(); }
  // The bytes of all records in the packs.
  std::uint64_t known_bytes() const { return packs_->record_bytes(); }
  const PackMounts& packs() const { return *packs_; }
  const std::vector<std::unique_ptr<const Bucket>>& buckets() const { return buckets_; }

 private:
  explicit Origins(std::unique_ptr<PackMounts> packs) : packs_(std::move(packs)) {}
  void add_bucket(const std::string& prefix, const std::string& url) {
    buckets_.push_back(std::make_unique<const Bucket>(prefix, url));
  }
  void make_places();
  void add_place(std::string_view prefix, const Origin& origin);

  struct OriginPlace {
    std::string_view prefix;
    const Origin* origin = nullptr;
  };
  std::unique_ptr<PackMounts> packs_;
  std::vector<std::unique_ptr<const Bucket>> buckets_;
  std::vector<std::unique_ptr<const PackOrigin>> pack_origins_;
  std::vector<std::unique_ptr<const ObjectOrigin>> object_origins_;
  // Sorted by prefix, longest first.
  std::vector<OriginPlace> places_;
};

}  // namespace cube::cache
