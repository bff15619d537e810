// MountMetadata: follows links by their targets in memory.
#include <dirent.h>
#include <sys/stat.h>

#include <climits>
#include <cstring>

#include "cache/metadata/mount_metadata.h"

namespace cube::cache {
namespace {

// The kernel follows at most this many links in one path.
constexpr int k_most_links = 40;

void cut_last(MountMetadata::FoundPath& path) {
  const std::size_t slash = path.view().rfind('/');
  path.length = slash == std::string_view::npos ? 0 : slash;
}

bool add_name(MountMetadata::FoundPath& path, std::string_view name) {
  if (path.length + name.size() + 2 > PATH_MAX) return false;
  path.text[path.length++] = '/';
  std::memcpy(path.text + path.length, name.data(), name.size());
  path.length += name.size();
  return true;
}

// Replaces the path of a link by the path of the link's target. The path to the link's directory
// must contain no links. False: only the kernel can follow the link, because a name before a ".."
// may be a link, or because the target ends in a slash.
bool go_by(MountMetadata::FoundPath& path, std::string_view target) {
  if (target.ends_with('/') || target.ends_with("/.")) return false;
  if (target.starts_with('/')) {
    path.length = 0;
  } else {
    cut_last(path);
  }
  bool has_name = false;
  for (std::size_t at = 0; at < target.size();) {
    const std::size_t end = std::min(target.find('/', at), target.size());
    const std::string_view part = target.substr(at, end - at);
    at = end + 1;
    if (part.empty() || part == ".") continue;
    if (part == "..") {
      if (has_name) return false;
      cut_last(path);
    } else {
      has_name = true;
      if (!add_name(path, part)) return false;
    }
  }
  return path.length > 1;
}

// Whether Linux may refuse to follow the link: it belongs to another user, in a sticky directory to
// which all users may write (fs.protected_symlinks).
bool may_be_refused(const FileStat& link, const FileStat& directory) {
  constexpr std::uint32_t k_for_all = S_ISVTX | S_IWOTH;
  return (directory.mode & k_for_all) == k_for_all && link.user != directory.user;
}

bool is_link_mode(std::uint32_t mode) { return (mode & S_IFMT) == S_IFLNK; }

}  // namespace

MountMetadata::Says MountMetadata::read_link(std::string_view key, FoundPath& target) {
  target.length = 0;
  if (!is_on_ || key.size() < 2) return Says::unknown;
  const Entry entry = entry_of(key);
  if (entry.says != Says::present) return entry.says;
  const std::uint8_t type = entry.entry.type;
  if (type != DT_LNK && type != DT_UNKNOWN) {
    if (!holds(*entry.directory, /*again=*/false)) return Says::unknown;
  } else {
    const EntryStat known = stat_of(key, entry);
    if (known.entry == nullptr) return Says::unknown;
    const std::string_view text = StatTable::target_of(*known.table, *known.entry);
    const bool is_known =
        !is_link_mode(known.entry->stat.mode) || (!text.empty() && text.size() < PATH_MAX);
    if (!is_known || !is_shown(known, entry)) return Says::unknown;
    if (is_link_mode(known.entry->stat.mode)) {
      std::memcpy(target.text, text.data(), text.size());
      target.length = text.size();
    }
  }
  region_->stats().count(base::Counter::metadata_stats);
  return Says::present;
}

// If the path ends in a link, follows this link. If the result is `present`, `is_link` tells
// whether the path was replaced.
MountMetadata::Says MountMetadata::go_on(FoundPath& path, Leads leads, bool& is_link) {
  is_link = false;
  const Entry entry = entry_of(path.view());
  if (entry.says == Says::absent) return Says::absent;
  if (entry.says == Says::unknown) {
    const Pin own = fresh_listing(path.view(), /*again=*/false);
    return own && own->is_physical() ? Says::present : Says::unknown;
  }
  if (!entry.directory->is_physical()) return Says::unknown;
  const std::uint8_t type = entry.entry.type;
  const bool may_be_link = type == DT_LNK || type == DT_UNKNOWN;
  const EntryStat known = may_be_link ? stat_of(path.view(), entry) : EntryStat();
  if (may_be_link && known.entry == nullptr) return Says::unknown;
  is_link = may_be_link && is_link_mode(known.entry->stat.mode);
  if (!is_link)
    return leads == Leads::by_link || holds(*entry.directory, /*again=*/false) ? Says::present
                                                                               : Says::unknown;
  const std::string_view target = StatTable::target_of(*known.table, *known.entry);
  if (target.empty() || !is_shown(known, entry)) return Says::unknown;
  // Only following such a link can be refused. realpath only reads links.
  if (leads == Leads::by_link && may_be_refused(known.entry->stat, entry.directory->stat))
    return Says::unknown;
  return go_by(path, target) ? Says::present : Says::unknown;
}

MountMetadata::Says MountMetadata::real_path(std::string_view key, Leads leads, FoundPath& real) {
  real.length = 0;
  if (!is_on_ || key.size() < 2 || key.size() >= PATH_MAX) return Says::unknown;
  std::memcpy(real.text, key.data(), key.size());
  real.length = key.size();
  for (int links = 0; links <= k_most_links; ++links) {
    bool is_link = false;
    const Says says = go_on(real, leads, is_link);
    if (says != Says::present) return says;
    if (is_link) continue;
    if (leads == Leads::by_link && links == 0) return Says::unknown;
    region_->stats().count(base::Counter::metadata_stats, leads == Leads::anywhere ? 1 : 0);
    return Says::present;
  }
  return Says::unknown;
}

}  // namespace cube::cache
