// Does a listing prove that a name which it does not have is absent? Some file systems find names
// that they do not list: hidden directories of snapshots, mounts that come when they are asked for,
// names in another case or another form of Unicode, short forms of long names. Which of them a
// directory is of may differ from the next one. Thread safety: all of it; async-signal-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string_view>

#include "cache/record/directory_data.h"

namespace cube::cache {

// May it be taken for absent, if a listing that proves_negative_entries does not have it in any
// case?
bool may_be_negative(std::string_view name);

class NegativeEntryTrial {
 public:
  // Is a name that this directory does not list in any case absent? Asks the kernel once for each
  // device.
  bool proves_negative_entries(int directory, std::uint64_t device,
                               std::span<const std::byte> entries);

 private:
  bool makes_names_when_asked(int directory, std::uint64_t device);

  static constexpr std::size_t k_devices = 16;
  std::atomic<std::uint64_t> known_[k_devices] = {};  // a device plus one, and whether; 0 is free
};

}  // namespace cube::cache
