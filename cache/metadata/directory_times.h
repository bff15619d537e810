// Tells whether the mtime of a directory changes when an entry is created or removed. Object stores
// behind FUSE may report an invented mtime that never changes. A listing revalidated by such an
// mtime would be served forever. So only file systems that are known to keep the mtime up to date
// are trusted. Thread-safe and async-signal-safe.
#pragma once

#include <cstdint>
#include <string_view>

#include "cache/base/device_answers.h"

namespace cube::cache {

// Whether this line of /proc/self/mountinfo describes this device, and names a user-space file
// system that keeps the times of directories up to date.
bool keeps_directory_times(std::string_view mountinfo_line, std::uint32_t major,
                           std::uint32_t minor);

class DirectoryTimes {
 public:
  // Asks the kernel once for each device. `directory`: an fd of a directory on the device.
  bool are_kept(int directory, std::uint64_t device);
  // Like are_kept(), but never asks the kernel. False if are_kept() was never called for this
  // device.
  bool are_known_to_be_kept(std::uint64_t device) const {
    return known_.find(device).value_or(false);
  }
  bool are_any_known() const { return known_.has_any(); }

 private:
  static bool ask(int directory, std::uint64_t device);

  base::DeviceAnswers known_;
};

}  // namespace cube::cache
