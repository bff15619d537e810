// Tells whether a listing that lacks a name proves that the name does not exist. Some file systems
// find names that they do not list: hidden directories of snapshots, mounts that appear on request,
// names in another case or Unicode form, and short forms of long names. Some do so only in certain
// directories. Thread-safe and async-signal-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "cache/base/device_answers.h"
#include "cache/record/directory_data.h"

namespace cube::cache {

// Whether a name may become a negative entry. The caller must have a listing for which
// proves_negative_entries() is true. The listing must not contain the name in upper, lower or mixed
// case.
bool may_be_negative(std::string_view name);

class NegativeEntryProof {
 public:
  // Whether the directory's listing proves that a name does not exist. The listing must not contain
  // the name in upper, lower or mixed case. Asks the kernel once for each device.
  bool proves_negative_entries(int directory, std::uint64_t device,
                               std::span<const std::byte> entries);

 private:
  bool makes_names_when_asked(int directory, std::uint64_t device);

  base::DeviceAnswers known_;
};

}  // namespace cube::cache
