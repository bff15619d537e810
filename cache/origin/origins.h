// All origins of a process: the packs of CUBESHIM_PACKS at their prefixes, and the mounts
// everywhere else. Thread safety: immutable after construction. open() and reopened() allocate.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cache/base/settings/config.h"
#include "cache/origin/mount_origin.h"
#include "cache/origin/pack_origin.h"

namespace cube::cache {

class Origins {
 public:
  // The variable that lists the origins that are not mounts.
  static constexpr const char* k_variable = "CUBESHIM_PACKS";
  // Makes each file's path absolute, as seen from `directory`, for processes that start in another
  // directory. Returns the variable's new value; empty if a colon in `directory` would change its
  // meaning.
  static std::string make_absolute(std::vector<base::OriginSetting>& settings,
                                   std::string_view directory);
  // Opens the packs that can be opened. `errors` gets a sentence for each other pack.
  static std::unique_ptr<Origins> open(const std::vector<base::OriginSetting>& settings,
                                       std::vector<std::string>& errors);
  // Opens the same origins again, for threads with an fd table of their own, where the fds of this
  // object mean nothing. Only such a thread calls it and uses the result. A pack whose path leads
  // to another file by now is left out.
  std::unique_ptr<Origins> reopened() const;

  const Origin& of(std::string_view path) const {
    for (const auto& place : places_) {
      if (place.mount->covers(path)) return *place.origin;
    }
    return mount_origin();
  }
  bool has_only_mounts() const { return places_.empty(); }
  // The bytes of all records in the packs.
  std::uint64_t known_bytes() const { return packs_->record_bytes(); }
  const PackMounts& packs() const { return *packs_; }

 private:
  explicit Origins(std::unique_ptr<PackMounts> packs);

  struct OriginPlace {
    const PackMount* mount;
    std::unique_ptr<const PackOrigin> origin;
  };
  std::unique_ptr<PackMounts> packs_;
  std::vector<OriginPlace> places_;
};

}  // namespace cube::cache
