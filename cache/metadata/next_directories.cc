#include "cache/metadata/next_directories.h"

#include <dirent.h>

#include <algorithm>

namespace cube::cache {
namespace {

std::vector<std::string_view> directories_of(const DirectoryData& listing) {
  std::vector<std::string_view> names;
  DirectoryData::Entry entry;
  for (DirectoryData::Reader reader(listing.entries()); reader.next(entry);) {
    if (entry.type == DT_DIR && !entry.is_dots()) names.push_back(entry.name);
  }
  return names;
}

// Returns the `count` names after `name`. `last` must precede `name`, with at most `between` names
// in between; otherwise returns nothing.
std::vector<std::string> names_after(const std::vector<std::string_view>& names,
                                     std::string_view last, std::string_view name,
                                     std::size_t between, std::size_t count) {
  const auto found = std::find(names.begin(), names.end(), name);
  const auto before = static_cast<std::size_t>(found - names.begin());
  const auto from = found - static_cast<std::ptrdiff_t>(std::min(before, between + 1));
  if (found == names.end() || std::find(from, found, last) == found) return {};
  const auto rest = static_cast<std::size_t>(names.end() - found) - 1;
  return {found + 1, found + 1 + static_cast<std::ptrdiff_t>(std::min(rest, count))};
}

}  // namespace

std::vector<std::string> NextDirectories::after(const std::string& parent, std::string_view name,
                                                const DirectoryData& listing) {
  std::vector<std::string> next;
  if (parent == parent_ && name != last_) {
    const std::size_t count = std::min(count_ == 0 ? 1 : 2 * count_, k_most);
    const std::size_t between = comes_ == Comes::to_some ? count_ : 0;
    std::vector<std::string_view> names = directories_of(listing);
    next = names_after(names, last_, name, between, count);
    if (next.empty()) {
      std::sort(names.begin(), names.end());
      next = names_after(names, last_, name, between, count);
    }
    count_ = next.empty() ? 0 : count;
  } else if (parent != parent_) {
    count_ = 0;
  }
  parent_ = parent;
  last_ = name;
  return next;
}

}  // namespace cube::cache
