// The interface through which a fill reuses a stat that a process of the node has already got from
// the origin. Thread-safe and async-signal-safe.
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
  // The stat of the regular file at this path, if the path does not end in a link. The origin was
  // asked at or after `since_ns` (base::boot_ns), and the file was not changed through the shim
  // since then.
  virtual std::optional<Known> known_stat(std::string_view key, std::uint64_t since_ns) const = 0;

 protected:
  ~KnownStats() = default;
};

}  // namespace cube::cache
