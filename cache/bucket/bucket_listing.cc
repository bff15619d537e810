#include "cache/bucket/bucket_listing.h"

#include <climits>
#include <cstring>

#include "cache/base/memory/off_stack.h"

namespace cube::cache {
namespace {

// The inode of "..". Above the bucket's root, this is the inode of the kernel's directory, if that
// directory exists.
std::uint64_t inode_above(const BucketMount& mount, std::string_view key) {
  const std::string_view above = base::split_path(key).directory;
  if (key.size() > mount.prefix().size()) return mount.stat_of_directory(mount.below(above)).inode;
  base::OffStack room;
  if (room && above.size() < PATH_MAX) {
    std::memcpy(room.data(), above.data(), above.size());
    room.data()[above.size()] = '\0';
    const auto stat = stat_path(AT_FDCWD, above.empty() ? "/" : room.data(), 0);
    if (stat) return stat->inode;
  }
  return mount.stat_of_directory({}).inode;
}

// Calls visit(entry, inode) for each name, in order.
template <typename Visit>
bool visit_names(const BucketMount& mount, std::string_view below, const ObjectNames& names,
                 Visit&& visit) {
  base::OffStack room;
  if (!room || below.size() + 1 + NAME_MAX >= PATH_MAX) return false;
  std::size_t start = below.size();
  std::memcpy(room.data(), below.data(), start);
  if (start != 0) room.data()[start++] = '/';
  for (std::uint64_t place = 0; place < names.count(); ++place) {
    const ObjectNames::Entry entry = names.at(place);
    if (entry.name.empty() || entry.name.size() > NAME_MAX) continue;
    std::memcpy(room.data() + start, entry.name.data(), entry.name.size());
    visit(entry, mount.stat_of_directory({room.data(), start + entry.name.size()}).inode);
  }
  return true;
}

}  // namespace

base::Result<Listing*> list_bucket(const Bucket& bucket, std::string_view key, bool with_names) {
  const BucketMount& mount = bucket.mount();
  const std::string_view below = mount.below(key);
  const FileStat stat = mount.stat_of_directory(below);
  const auto listed = bucket.list(key);
  if (!listed) return base::fail(listed.error().value);
  const auto found = ObjectNames::of(**listed);
  if (!found) return base::fail(EIO);
  const ObjectNames names = *found;
  std::uint64_t bytes = 0;
  if (with_names) {
    bytes = Listing::entry_bytes(1) + Listing::entry_bytes(2);
    for (std::uint64_t place = 0; place < names.count(); ++place)
      bytes += Listing::entry_bytes(names.at(place).name.size());
  }
  const auto made = Listing::make(mount.prefix(), below, stat, bytes);
  if (!made || !with_names) return made;
  Listing& listing = **made;
  listing.add(".", stat.inode, DT_DIR);
  listing.add("..", inode_above(mount, key), DT_DIR);
  const bool is_whole = visit_names(mount, below, names, [&](const auto& entry, auto inode) {
    listing.add(entry.name, inode, entry.is_directory ? DT_DIR : DT_REG);
  });
  if (is_whole) return made;
  listing.release();
  return base::fail(ENAMETOOLONG);
}

}  // namespace cube::cache
