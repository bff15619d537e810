// The reasons why a Prefetcher declines a fetch (FetchResult::reason). Thread safety: constants and
// a pure function.
#pragma once

#include <sys/stat.h>

#include <cstdint>

#include "cache/base/settings/stats.h"

namespace cube::prefetch {

enum DeclineReason : int {
  k_is_there = 1,
  k_no_room,
  k_too_large,
  k_directory,
  k_not_a_file,
  k_busy,
  k_large,      // the file is fetched in blocks
  k_published,  // the record came from another node
  k_ask_origin  // no other node has it
};

// `why`: RecordFill::reason.
inline DeclineReason reason_of(base::Counter why, std::uint32_t mode) {
  switch (why) {
    case base::Counter::bypassed_full: return k_no_room;
    case base::Counter::bypassed_size: return k_too_large;
    case base::Counter::bypassed_kind: return S_ISDIR(mode) ? k_directory : k_not_a_file;
    default: return k_busy;
  }
}

}  // namespace cube::prefetch
