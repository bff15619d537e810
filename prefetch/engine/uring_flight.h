// One fetch on a ring: the state that is needed when the kernel completes an operation of the
// fetch. Thread safety: only the ring's thread, except as noted.
#pragma once

#include <linux/openat2.h>

#include "cache/base/process/proc_fd_name.h"
#include "cache/base/whole_read.h"
#include "prefetch/engine/whole_file.h"

namespace cube::prefetch {

enum class Stage : std::uint8_t {
  free,
  naming,
  naming_with_links,
  sorting,
  opening,
  stating,
  reading,
  looking_again,
  closing
};

struct UringFlight {
  Stage stage = Stage::free;
  cache::LinksOnWay links = cache::LinksOnWay::unknown;
  int fd = -1;            // an O_PATH fd until the file itself is open
  bool is_local = false;  // none of its operations waits for a server (origin_kinds.h)
  bool is_over = false;   // the fetch has ended; only the close is left
  bool by_name = false;   // the second open is by path as well
  // Written inside the gate. A thread that has closed the gate may read them.
  Fetch* fetch = nullptr;
  bool has_room = false;
  bool may_be_kept = true;                 // see cache/origin/kept_attributes.h
  std::uint64_t most_opened = UINT64_MAX;  // Fetch::most_opened

  Room room;
  cache::FileStat stat{};
  FetchResult result;
  base::WholeRead read;
  struct ::open_how how {};
  base::ProcFdName again{-1, base::ProcFdName::Table::thread};  // the name of `fd`, once its kind
                                                                // is known
  struct ::statx statx {};
  char path[PATH_MAX + 1];
};

}  // namespace cube::prefetch
