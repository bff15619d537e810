// Would the origin let this process read what a tier has of it? A process of this user has read it, with the mode, owner, group
// and ctime that it has now, so no ACL has changed since. But the user's groups may have, and those with capabilities read what
// others cannot: in RAM the views (base/view.h) tell these apart. From a tier, only what the owner may read, or everybody, is
// served without an open. Thread safety: pure functions; async-signal-safe.
#pragma once

#include <sys/stat.h>

#include "cache/base/sys.h"
#include "cache/record/file_stat.h"

namespace cube::cache {

// `bits`: S_IROTH, S_IXOTH or both.
inline bool may_be_used(const FileStat& stat, std::uint32_t bits) {
  const std::uint32_t of_owner = bits << 6, of_all_others = bits << 3 | bits, of_all = of_owner | of_all_others;
  // Most data sets are so. The user is not asked for then.
  if ((stat.mode & of_all) == of_all) return true;
  const auto user = static_cast<std::uint32_t>(base::sys::raw(SYS_geteuid));
  return stat.user == user ? (stat.mode & of_owner) == of_owner : (stat.mode & of_all_others) == of_all_others;
}

inline bool may_be_read(const FileStat& stat) { return may_be_used(stat, S_IROTH); }
// A directory, and what is known of its entries.
inline bool may_be_listed(const FileStat& stat) { return may_be_used(stat, S_IROTH | S_IXOTH); }

}  // namespace cube::cache
