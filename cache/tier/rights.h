// Decides whether the origin would let this process open a file that a tier has. Mode bits do not
// tell: an access control list, a server that decides by itself, or a squashed root may refuse what
// they allow. It is proven if a process with the same rights has opened the file by this path, with
// the mode, owner and ctime that it has now; otherwise an open asks the origin. Thread safety:
// pure.
#pragma once

#include "cache/record/record.h"
#include "cache/region/region.h"

namespace cube::cache {

inline bool is_proven_open(const Record& record, const Region& region) {
  return record.rights != 0 && record.rights == region.own_rights();
}

}  // namespace cube::cache
