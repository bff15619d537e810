// Tells whether a listing that lacks a name proves that the name does not exist. Some file systems
// find names that they do not list: hidden directories of snapshots, mounts that appear when they
// are asked for, names in another case or another Unicode form, short forms of long names. This may
// differ from one directory to the next. Thread-safe and async-signal-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "cache/metadata/device_answers.h"
#include "cache/record/directory_data.h"

namespace cube::cache {

// Whether a name may become a negative entry if a listing that proves_negative_entries() has it
// neither in upper nor in lower case.
bool may_be_negative(std::string_view name);

class NegativeEntryProof {
 public:
  // Whether the absence of a name from this directory's listing, in upper and lower case, proves
  // that it does not exist. Asks the kernel once for each device.
  bool proves_negative_entries(int directory, std::uint64_t device,
                               std::span<const std::byte> entries);

 private:
  bool makes_names_when_asked(int directory, std::uint64_t device);

  DeviceAnswers known_;
};

}  // namespace cube::cache
