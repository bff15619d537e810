#include "cache/pack/make/tree_names.h"

#include <algorithm>
#include <cstring>

#include "cache/base/file_io.h"
#include "cache/pack/pack_format.h"

namespace cube::cache {

base::Result<TreeNames> TreeNames::list(int directory) {
  std::vector<std::byte> block(64 << 10);
  TreeNames names;
  const auto listed = base::visit_entries(directory, block, [&](const base::DirectoryEntry& entry) {
    const std::string_view name = entry.c_str();
    if (name != "." && name != "..") names.add(name, entry.inode, entry.type);
  });
  if (!listed) return base::fail(listed.error().value);
  names.sort();
  return names;
}

void TreeNames::add(std::string_view name, std::uint64_t inode, std::uint8_t type) {
  names_.push_back({.inode = inode,
                    .at = text_.size(),
                    .length = static_cast<std::uint16_t>(name.size()),
                    .type = type});
  text_.append(name);
  text_.push_back('\0');
}

void TreeNames::sort() {
  const auto of = [this](const TreeName& name) {
    return std::string_view(text_.data() + name.at, name.length);
  };
  std::sort(names_.begin(), names_.end(),
            [&](const TreeName& a, const TreeName& b) { return of(a) < of(b); });
  // A directory that changes while it is listed may return a name twice.
  const auto last =
      std::unique(names_.begin(), names_.end(),
                  [&](const TreeName& a, const TreeName& b) { return of(a) == of(b); });
  names_.erase(last, names_.end());
}

std::string TreeNames::listing(bool is_complete) const {
  PackListing head{.flags = is_complete ? PackListing::k_complete : 0, .reserved = 0, .count = 0};
  std::string data(sizeof head, '\0');
  for (std::size_t i = 0; i < names_.size(); ++i) {
    const TreeName& name = names_[i];
    if (!name.is_packed) continue;
    const PackName row{
        .inode = name.inode, .length = name.length, .type = name.type, .reserved = {}};
    data.append(reinterpret_cast<const char*>(&row), sizeof row);
    data.append(c_str(i), std::size_t{name.length} + 1);
    ++head.count;
  }
  std::memcpy(data.data(), &head, sizeof head);
  return data;
}

}  // namespace cube::cache
