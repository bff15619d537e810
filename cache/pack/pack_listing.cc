#include "cache/pack/pack_listing.h"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace cube::cache {
namespace {

// The inodes of listed directories. A program that walks a tree lists a directory before its
// subdirectories, whose ".." then needs no read. The hash of the path selects the row. A row is
// valid if the xor of its two words is the hash.
struct KnownInode {
  std::atomic<std::uint64_t> inode{0}, check{0};
};
constexpr std::size_t k_known = 1024;
constinit KnownInode g_known[k_known]{};

std::uint64_t known_hash(const PackMount& mount, std::string_view path) {
  const std::uint64_t words[] = {base::hash_path(path), mount.reader().identity()};
  return base::hash_bytes(words, sizeof words);
}
void remember(std::uint64_t hash, std::uint64_t inode) {
  KnownInode& known = g_known[hash % k_known];
  known.check.store(hash ^ inode, std::memory_order_relaxed);
  known.inode.store(inode, std::memory_order_relaxed);
}
bool recall(std::uint64_t hash, std::uint64_t& inode) {
  const KnownInode& known = g_known[hash % k_known];
  inode = known.inode.load(std::memory_order_relaxed);
  return (known.check.load(std::memory_order_relaxed) ^ inode) == hash;
}

// The inode of "..". Above the pack's root, this is the inode of the kernel's directory, if that
// directory exists.
std::uint64_t inode_above(const PackMount& mount, std::string_view path, std::uint64_t own) {
  const std::size_t slash = path.rfind('/');
  if (path.size() > mount.prefix().size()) {
    const std::string_view parent = path.substr(0, slash);
    std::uint64_t inode = 0;
    if (recall(known_hash(mount, parent), inode)) return inode;
    PackMount::FoundName found;
    return mount.find(parent, /*follows=*/true, found) ? found.entry.stat.inode : own;
  }
  base::OffStack parent;
  if (!parent) return own;
  std::memcpy(parent.data(), path.data(), slash + 1);
  parent.data()[slash + 1] = '\0';
  const auto stat = stat_path(AT_FDCWD, parent.data(), 0);
  return stat ? stat->inode : own;
}

// Makes the kernel fetch records of a pack. One request covers all records that are adjacent.
class AskedRecords {
 public:
  explicit AskedRecords(const PackReader& reader) : reader_(reader) {}
  AskedRecords(const AskedRecords&) = delete;
  AskedRecords& operator=(const AskedRecords&) = delete;
  ~AskedRecords() { ask(); }

  void add(const PackSlot& slot) {
    // Records with at most this many bytes (of zeros) between them count as adjacent. Reading a
    // page costs as much as reading a small record.
    constexpr std::uint64_t k_most_between = 4 << 10;
    if (slot.offset < span_.end() || slot.offset - span_.end() > k_most_between) {
      ask();
      span_ = {slot.offset, 0};
    }
    span_.bytes = slot.offset + slot.bytes - span_.begin;
  }

 private:
  void ask() { reader_.will_need(span_.begin, span_.bytes); }

  const PackReader& reader_;
  PackSpan span_;
};

// A program that lists a directory usually enters its subdirectories next. Requests their records
// now, so that they arrive while the program works in the first subdirectory.
void ask_for_directories(const PackMount& mount, std::string_view path, std::string_view listing,
                         std::uint32_t directories) {
  constexpr std::uint32_t k_least = 4, k_most = 4096;
  constexpr std::uint64_t k_most_bytes = 32 << 20;
  base::OffStack room;
  if (!room || directories < k_least || !mount.reader().keeps_pages()) return;
  char* const text = room.data();
  std::memcpy(text, path.data(), path.size());
  std::size_t length = path.size();
  if (length != 0) text[length++] = '/';
  std::string_view name;
  PackName row;
  mount.reader().will_need_index();
  AskedRecords records(mount.reader());
  std::uint64_t bytes = 0;
  std::uint32_t asked = 0;
  for (PackListingReader reader(listing);
       asked < k_most && bytes < k_most_bytes && reader.next(name, row);) {
    if (row.type != DT_DIR || length + name.size() >= PATH_MAX) continue;
    std::memcpy(text + length, name.data(), name.size());
    const auto slot = mount.reader().locate(base::hash_path({text, length + name.size()}));
    if (!slot || slot->bytes > k_most_bytes) continue;
    records.add(*slot);
    bytes += slot->bytes;
    ++asked;
  }
}

}  // namespace

base::Result<Listing*> list_packed(const PackMount& mount, std::string_view path, bool follows,
                                   bool with_names) {
  base::Scratch scratch;
  PackMount::FoundName found;
  PackMount::Content content;
  const auto read = mount.read_listing(path, follows, scratch, found, content);
  if (!read) return base::fail(read.error().value);
  const std::string_view data(reinterpret_cast<const char*>(content.data), content.entry.data_size);

  std::uint64_t bytes = with_names ? Listing::entry_bytes(1) + Listing::entry_bytes(2) : 0;
  std::string_view name;
  PackName row;
  std::uint32_t directories = 0;
  if (with_names) {
    PackListingReader reader(data);
    while (reader.next(name, row)) {
      bytes += Listing::entry_bytes(name.size());
      directories += row.type == DT_DIR ? 1 : 0;
    }
    if (!reader.is_sound()) return base::fail(EIO);
  }
  const auto made = Listing::make(mount.prefix(), found.name(), content.stat, bytes);
  if (!made || !with_names) return made;

  Listing& listing = **made;
  if (directories != 0) remember(known_hash(mount, listing.path()), content.stat.inode);
  listing.add(".", content.stat.inode, DT_DIR);
  listing.add("..", inode_above(mount, listing.path(), content.stat.inode), DT_DIR);
  PackListingReader reader(data);
  while (reader.next(name, row)) listing.add(name, row.inode, row.type);
  ask_for_directories(mount, found.name(), data, directories);
  return made;
}

}  // namespace cube::cache
