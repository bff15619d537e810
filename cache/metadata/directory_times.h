// Does the mtime of a directory tell that a name in it was made or removed? Object stores behind
// FUSE make it up: it stays as it is, and a listing that was compared by it would hold for ever. So
// only file systems are believed that are known to keep it. Thread safety: all of it;
// async-signal-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace cube::cache {

// Is the line (of /proc/self/mountinfo) that of this device, and does it name a file system that
// keeps them?
bool keeps_directory_times(std::string_view mountinfo_line, std::uint32_t major,
                           std::uint32_t minor);

class DirectoryTimes {
 public:
  // Asks the kernel once for each device. `directory`: an fd on it.
  bool are_kept(int directory, std::uint64_t device);
  // Asks nobody. False where nobody has asked yet.
  bool are_known_to_be_kept(std::uint64_t device) const;
  bool are_any_known() const { return known_[0].load(std::memory_order_relaxed) != 0; }

 private:
  static bool ask(int directory, std::uint64_t device);

  static constexpr std::size_t k_devices = 16;
  std::atomic<std::uint64_t> known_[k_devices] = {};  // a device and whether; 0 is free
};

}  // namespace cube::cache
