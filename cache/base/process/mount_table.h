// The mounts of this process's namespace that are reachable from its root directory.
#pragma once

#include <cstddef>
#include <cstring>
#include <string_view>

#include "cache/base/memory/off_stack.h"
#include "cache/base/sys.h"
#include "cache/base/unique_fd.h"
#include "cache/base/words.h"

namespace cube::base {

// Calls visit(line) for each line of /proc/self/mountinfo: "36 35 98:0 /root /mount/point options -
// ext4 ...". The kernel writes this table without asking a server. Returns false if lines are
// missing: the table could not be read, or a line was too long. Allocates nothing.
template <typename Visit>
bool for_each_mount(const Visit& visit) {
  const UniqueFd table(static_cast<int>(sys::open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC)));
  OffStack room;
  if (table.get() < 0 || !room) return false;
  bool is_whole = true;
  // Holds an incomplete line and the text read after it.
  std::size_t held = 0;
  while (true) {
    const long n = sys::read(table.get(), room.data() + held, OffStack::k_bytes - held);
    if (n <= 0) return is_whole && n == 0;
    std::string_view text(room.data(), held + static_cast<std::size_t>(n));
    for (std::size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
      visit(text.substr(0, end));
      text.remove_prefix(end + 1);
    }
    if (text.size() == OffStack::k_bytes) {
      is_whole = false;
      text = {};
    }
    held = text.size();
    std::memmove(room.data(), text.data(), held);
  }
}

// Whether this process's root directory is a mount point. It is one unless the process has called
// chroot on a directory that is not. False if this cannot be determined.
inline bool has_mount_at_root() {
  bool is_there = false;
  for_each_mount([&](std::string_view line) {
    for (int i = 0; i < 4; ++i) take_word(line);
    is_there = is_there || take_word(line) == "/";
  });
  return is_there;
}

}  // namespace cube::base
