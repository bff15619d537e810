#include "cache/pack/make/tree_names.h"

#include <dirent.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "cache/base/sys.h"
#include "cache/pack/pack_format.h"

namespace cube::cache {
namespace {

// As getdents64 writes it.
struct Dirent {
  std::uint64_t inode;
  std::int64_t next;
  std::uint16_t length;
  std::uint8_t type;
  char name[1];
};

}  // namespace

base::Result<TreeNames> TreeNames::list(int directory) {
  constexpr std::size_t k_block = 64 << 10;
  std::vector<std::byte> block(k_block);
  TreeNames names;
  for (;;) {
    const long n = base::sys::getdents64(directory, block.data(), k_block);
    if (n == -EINTR) continue;
    if (base::sys::failed(n)) return base::fail(static_cast<int>(-n));
    if (n == 0) break;
    for (std::size_t at = 0; at < static_cast<std::size_t>(n);) {
      Dirent entry{};
      std::memcpy(&entry, block.data() + at, offsetof(Dirent, name));
      const std::string_view name(reinterpret_cast<const char*>(block.data() + at) +
                                  offsetof(Dirent, name));
      at += entry.length;
      if (name != "." && name != "..") names.add(name, entry.inode, entry.type);
    }
  }
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
  // A directory that changes while it is listed may give a name twice.
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
