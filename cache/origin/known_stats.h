// The interface through which a fill reuses a stat that a process of the node has got from the
// origin before. Thread-safe and async-signal-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "cache/record/file_stat.h"

namespace cube::cache {

class KnownStats {
 public:
  struct Known {
    FileStat stat;
    std::uint64_t looked_ns = 0;  // base::boot_ns, before the origin was asked
  };
  // The stat of the regular file at this path. Empty if the path ends in a link, if the origin was
  // not asked at or after `since_ns` (base::boot_ns), or if the file was changed through the shim
  // since then.
  virtual std::optional<Known> known_stat(std::string_view key, std::uint64_t since_ns) const = 0;

 protected:
  ~KnownStats() = default;
};

}  // namespace cube::cache
