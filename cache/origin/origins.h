// All origins of a process: the packs of CUBESHIM_PACKS at their prefixes, and the mounts
// everywhere else. Thread safety: nothing changes after it was made. open() and reopened()
// allocate.
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
  // The variable that lists those that are no mounts.
  static constexpr const char* k_variable = "CUBESHIM_PACKS";
  // For processes that are started elsewhere: each file's path as seen from `directory`. The
  // variable's new value; empty where it would be read otherwise, because the directory has a
  // colon.
  static std::string make_absolute(std::vector<base::OriginSetting>& settings,
                                   std::string_view directory);
  // The packs that can be opened; a sentence for each other.
  static std::unique_ptr<Origins> open(const std::vector<base::OriginSetting>& settings,
                                       std::vector<std::string>& errors);
  // The same origins for threads with an fd table of their own, where the fds of these mean
  // nothing. It is called there, and used by nobody else. A pack that is another file by now is
  // left out.
  std::unique_ptr<Origins> reopened() const;

  const Origin& of(std::string_view path) const {
    for (const auto& place : places_) {
      if (place.mount->covers(path)) return *place.origin;
    }
    return mount_origin();
  }
  bool has_only_mounts() const { return places_.empty(); }
  // The size of all records of the origins that know their names, in bytes: those of the packs.
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
