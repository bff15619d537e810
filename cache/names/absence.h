// Does a listing prove that a name which it does not have is absent? Some file systems find names that they do not list: hidden
// directories of snapshots, mounts that come when they are asked for, names in another case or another form of Unicode. Thread
// safety: all of it; async-signal-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "cache/record/directory_data.h"

namespace cube::cache {

// May it be taken for absent, if a listing of which the next function says yes does not have it?
bool may_be_told_absent(std::string_view name);

// Is a name that this directory does not list absent? Asks the origin once for each device. False where it cannot be known.
class AbsenceTrial {
 public:
  bool tells_absence(int directory, std::uint64_t device, std::span<const std::byte> entries);
  // Asks nobody. False where nobody has asked yet.
  bool is_known_to_tell(std::uint64_t device) const;

 private:
  enum class Verdict : std::uint64_t { unknown, yes, no };
  static Verdict ask(int directory, std::span<const std::byte> entries);

  static constexpr std::size_t k_devices = 16;
  std::atomic<std::uint64_t> known_[k_devices] = {};  // a device and a verdict; 0 is free
};

}  // namespace cube::cache
