// Decides whether the origin would let this process open a file that a tier has. Mode bits do not
// suffice: an access control list, a server's own rules, or a squashed root may refuse an open that
// the mode bits allow. The right is proven if a process with the same rights has opened the file by
// this path since the file's mode, owner and ctime last changed. Otherwise an open must ask the
// origin. Thread safety: pure.
#pragma once

#include "cache/record/record.h"
#include "cache/region/region.h"

namespace cube::cache {

inline bool is_proven_open(const Record& record, const Region& region) {
  return record.rights != 0 && record.rights == region.own_rights();
}

}  // namespace cube::cache
