// Looks for a proof that the origin would let this process open a file that a tier has. Mode bits
// prove nothing: an access control list, the rules of a server, or a squashed root may refuse an
// open that the mode bits allow. The right is proven if a process with the same rights has opened
// the file by this path, and if the file's mode, owner and ctime are unchanged since then.
// Otherwise the file must be opened at the origin. Thread safety: pure.
#pragma once

#include "cache/record/record.h"
#include "cache/region/region.h"

namespace cube::cache {

inline bool is_proven_open(const Record& record, const Region& region) {
  return record.rights != 0 && record.rights == region.own_rights();
}

}  // namespace cube::cache
