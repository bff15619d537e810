// One fetch on a ring: what the kernel has to find again when an operation of it is done.
// Thread safety: the ring's thread alone, but for what is said.
#pragma once

#include <linux/openat2.h>

#include "prefetch/whole_file.h"

namespace cube::prefetch {

enum class Stage : std::uint8_t { free, opening, opening_with_links, stating, reading, looking_again, closing };

struct Flight {
  Stage stage = Stage::free;
  Links links = Links::unknown;
  int fd = -1;
  bool is_local = false;  // nothing of it waits for a server (origin_kinds.h)
  bool is_over = false;   // ended, and only to be closed
  // Written inside the gate: who has closed it may read them.
  Fetch* fetch = nullptr;
  bool has_room = false;

  Room room;
  std::uint64_t got = 0;
  cache::FileStat stat{};
  FetchResult result;
  ReadParts parts;
  struct ::open_how how {};
  struct ::statx statx {};
  char path[PATH_MAX + 1];
};

}  // namespace cube::prefetch
