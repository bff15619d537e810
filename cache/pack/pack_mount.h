// A pack as a directory tree under a prefix. The class looks up paths, follows links within the
// pack, and returns stats as a separate file system would. A file takes one read of the pack. The
// stat of an uncached entry takes one short read. A path that does not exist takes a read of its
// parent, or no read if the last missing path had the same parent. In a pack with links, a missing
// path takes a read of each component. Thread safety: any number of threads may call const
// functions, which take no lock, do not call malloc, and make raw system calls only. Errors are
// those of a file system: ENOENT, ENOTDIR, ELOOP, ENAMETOOLONG. After ENOENT, the caller asks the
// kernel. Known limits: a link that leads out of the pack is broken, and a user who can read the
// pack can read every file in it.
#pragma once

#include <algorithm>
#include <atomic>
#include <climits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cache/base/memory/off_stack.h"
#include "cache/base/memory/scratch.h"
#include "cache/base/path.h"
#include "cache/base/settings/config.h"
#include "cache/pack/pack_reader.h"
#include "cache/pack/pack_window.h"

namespace cube::cache {

// A bit in the minor device numbers of packs. No device of the kernel has it, because the kernel's
// minor numbers have only 20 bits. The minor number identifies the pack under its prefix, as long
// as the pack's file stays the same. The major number distinguishes the devices from which the
// files were packed.
inline constexpr std::uint32_t k_pack_device = 1U << 31;

class PackMount {
 public:
  // Null: `why` is a sentence that explains the failure.
  static std::unique_ptr<PackMount> open(const base::OriginSetting& setting, std::string& why);

  bool covers(std::string_view path) const { return base::is_at_or_below(path, prefix_); }

  struct FoundName {
    PackEntry entry;  // with the stat that the program sees
    PackSlot slot;
    bool physical = true;  // no link was followed
    std::uint32_t length = 0;
    base::OffStack path;  // the path in the pack; at most PATH_MAX bytes of the room are used
    std::string_view name() const { return {path.data(), length}; }
  };
  // Finds an absolute path under the prefix. `follows`: a link at the end of the path is followed,
  // too. EIO: the entry is damaged.
  base::Result<void> find(std::string_view path, bool follows, FoundName& found) const;

  struct Content {
    FileStat stat{};
    bool physical = true;
    const std::byte* data = nullptr;  // the file's bytes, in the scratch buffer; null: they were
                                      // not read
    PackEntry entry;
    // If not null: the bytes of `span` in the pack, which were read together with the record into
    // the scratch buffer.
    const std::byte* window = nullptr;
    PackSpan span;
  };
  enum class Reach : std::uint8_t { record, window };
  // Reads a regular file with all its bytes. The read may also fetch the file's neighbours in the
  // pack (Reach::window). The bytes are left out if there are more than `most`. EISDIR: it is not a
  // regular file.
  base::Result<void> read(std::string_view path, std::uint64_t most, base::Scratch& scratch,
                          Content& content, Reach reach = Reach::record) const;
  // The place of a path's record, from the index alone. Empty: there is no such record, the index
  // is too large to be kept in memory, or the record is too large to be read together with others.
  PackSpan place_of(std::string_view path) const;
  // read_span reads a whole span with one request. After that, take() returns a regular file of the
  // span by its path and place. If take() fails, read() may still succeed.
  base::Result<void> read_span(const PackSpan& span, base::Scratch& scratch,
                               Content& content) const;
  base::Result<void> take(std::string_view path, const PackSpan& place, Content& content) const;
  // Like read(), but reads the listing of a directory, of any length. `found` becomes the directory
  // to which the path leads. ENOTDIR: it is not a directory.
  base::Result<void> read_listing(std::string_view path, bool follows, base::Scratch& scratch,
                                  FoundName& found, Content& content) const;
  // Resolves a path that contains "..". Links before the last component are followed. ENOENT: the
  // path does not exist, or leaves the pack.
  base::Result<void> resolve(std::string_view path, FoundName& found) const;
  // The stat of an entry as the program sees it.
  FileStat as_seen(FileStat stat) const;
  // The minor device number in the stats of this pack, and only of this pack. It identifies the
  // pack under its prefix.
  std::uint32_t device_minor() const { return device_minor_; }
  const PackReader& reader() const { return *reader_; }
  // The bytes of all records.
  std::uint64_t record_bytes() const {
    return reader_->header().records_end - reader_->header().records_begin;
  }
  const std::string& prefix() const { return prefix_; }

 private:
  std::string_view below_prefix(std::string_view path) const {
    path.remove_prefix(std::min(path.size(), prefix_.size() + 1));
    return path;
  }
  base::Result<void> begin(std::string_view path, FoundName& found) const;
  struct Wish {
    bool follows = true;
    std::uint64_t most = 0;  // bytes
    Reach reach = Reach::record;
  };
  base::Result<void> read_any(const Wish& wish, base::Scratch& scratch, FoundName& found,
                              Content& content) const;
  base::Result<PackEntry> find_in_window(const FoundName& found, Content& content) const;
  void read_window(const PackSlot& slot, base::Scratch& scratch, Content& content) const;
  base::Result<PackEntry> read_found(const FoundName& found, Reach reach, base::Scratch& scratch,
                                     Content& content) const;
  // Like read_any, but may return bytes of a damaged or replaced pack.
  base::Result<void> read_as_it_is(const Wish& wish, base::Scratch& scratch, FoundName& found,
                                   Content& content) const;
  // Turns a result into the result for the program. Returns EIO if the pack is damaged or was
  // changed.
  base::Result<void> as_seen(const base::Result<void>& result) const;
  base::Result<void> look_up(FoundName& found, bool wants_entry) const;
  int negative_entry_of(std::string_view name) const;
  base::Result<void> follow_links(bool follows_last, FoundName& found) const;

  std::string prefix_;
  std::uint32_t device_minor_ = 0;
  std::unique_ptr<PackReader> reader_;
  std::unique_ptr<PackWindows> windows_;  // null: there was no memory
  // The hash of a path: the existing directory of the last missing entry.
  mutable std::atomic<std::uint64_t> last_directory_{0};
};

// All packs of a process.
class PackMounts {
 public:
  // Opens all packs that can be opened. For each other pack, adds a sentence to `errors`.
  static std::unique_ptr<PackMounts> open(const std::vector<base::OriginSetting>& settings,
                                          std::vector<std::string>& errors);
  void add(std::unique_ptr<PackMount> mount) { mounts_.push_back(std::move(mount)); }
  bool is_empty() const { return mounts_.empty(); }
  // The bytes of all records of all packs.
  std::uint64_t record_bytes() const {
    std::uint64_t sum = 0;
    for (const auto& mount : mounts_) sum += mount->record_bytes();
    return sum;
  }
  // Opens the same packs again, for threads with their own fd table, where the fds of this object
  // are not valid. Only such a thread may call this function and use the result. If the path of a
  // pack now names another file, the pack is left out. Allocates.
  std::unique_ptr<PackMounts> opened_anew() const;
  const std::vector<std::unique_ptr<PackMount>>& all() const { return mounts_; }
  // The pack that covers the path. Null: no pack covers it.
  const PackMount* of(std::string_view path) const {
    for (const auto& mount : mounts_) {
      if (mount->covers(path)) return mount.get();
    }
    return nullptr;
  }

 private:
  std::vector<std::unique_ptr<PackMount>> mounts_;
};

}  // namespace cube::cache
