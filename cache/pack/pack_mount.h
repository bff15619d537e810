// Packs as directories: paths under a prefix are looked up in the pack, links are followed within
// it, and stats are such as a file system of its own would give. A name that the pack does not have
// is not answered here: ENOENT, and the caller asks the kernel. A file costs one read, a stat of
// what is not cached one short read, what is not there one of the directory above it, unless that
// was the last one asked for (where no link can lead there). Errors are those of a file system:
// ENOTDIR, ELOOP, ENAMETOOLONG. Known limits: a link that leads out of the pack leads nowhere;
// whoever can read the pack can read all that is in it. Thread safety: all const functions, by any
// number of threads; no lock, no allocation by malloc, raw calls.
#pragma once

#include <algorithm>
#include <atomic>
#include <climits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cache/base/memory/scratch.h"
#include "cache/base/path.h"
#include "cache/base/process/aside.h"
#include "cache/base/settings/config.h"
#include "cache/pack/pack_reader.h"
#include "cache/pack/pack_window.h"

namespace cube::cache {

// A device that the kernel cannot have: its own minor numbers have 20 bits. The minor number is the
// pack's under its prefix, for as long as its file is the same; files that were on several devices
// when they were packed differ in the major number.
inline constexpr std::uint32_t k_pack_device = 1U << 31;

class PackMount {
 public:
  // Null: `why` is a sentence.
  static std::unique_ptr<PackMount> open(const base::OriginSetting& setting, std::string& why);

  bool covers(std::string_view path) const { return base::is_at_or_below(path, prefix_); }

  struct FoundName {
    PackEntry entry;  // its stat as the program sees it
    PackSlot slot;
    bool physical = true;  // no link was followed
    std::uint32_t length = 0;
    base::Aside path;  // in the pack; PATH_MAX bytes of it
    std::string_view name() const { return {path.data(), length}; }
  };
  // Finds an absolute path under the prefix. `follows`: a link at its end is followed, too. EIO:
  // the pack is damaged there.
  base::Result<void> find(std::string_view path, bool follows, FoundName& found) const;

  struct Content {
    FileStat stat{};
    bool physical = true;
    const std::byte* data = nullptr;  // in the scratch; null: too large for it
    PackEntry entry;
    // The bytes that were read with it, in the scratch: `span` of the pack.
    const std::byte* window = nullptr;
    PackSpan span;
  };
  enum class Reach : std::uint8_t { record, window };
  // A regular file with all its bytes, by one read, which may bring its neighbours in the pack,
  // too. EISDIR: it is something else.
  base::Result<void> read(std::string_view path, std::uint64_t most, base::Scratch& scratch,
                          Content& content, Reach reach = Reach::record) const;
  // The place of a path's record, by the index alone. Empty: there is none, the index is too large
  // for such a question, or the record for a read with others.
  PackSpan place_of(std::string_view path) const;
  // Reads a span by one request. take() then gives the regular files in it, by their paths and
  // places; where it fails, read() may not.
  base::Result<void> read_span(const PackSpan& span, base::Scratch& scratch,
                               Content& content) const;
  base::Result<void> take(std::string_view path, const PackSpan& place, Content& content) const;
  // The same for a directory's listing, however long it is; `found` is where it really lies.
  // ENOTDIR: it is something else.
  base::Result<void> read_listing(std::string_view path, bool follows, base::Scratch& scratch,
                                  FoundName& found, Content& content) const;
  // Finds the place that a path with ".." in it leads to. Links before its last component are
  // followed. ENOENT: out of the pack, too.
  base::Result<void> resolve(std::string_view path, FoundName& found) const;
  // The stat of an entry as the program sees it.
  FileStat as_seen(FileStat stat) const;
  // All stats that this pack gives have it, and no others: it is the pack's identity under its
  // prefix.
  std::uint32_t device_minor() const { return device_minor_; }
  const PackReader& reader() const { return *reader_; }
  // The size of all records together.
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
  // The same, damage and all.
  base::Result<void> read_as_it_is(const Wish& wish, base::Scratch& scratch, FoundName& found,
                                   Content& content) const;
  // The result that the program is told, after the last look at the pack: EIO where that is
  // damaged, or another by now.
  base::Result<void> as_seen(const base::Result<void>& result) const;
  base::Result<void> look_up(FoundName& found, bool wants_entry) const;
  int negative_entry_of(std::string_view name) const;
  base::Result<void> follow_links(bool follows_last, FoundName& found) const;

  std::string prefix_;
  std::uint32_t device_minor_ = 0;
  std::unique_ptr<PackReader> reader_;
  std::unique_ptr<PackWindows> windows_;  // null: there was no memory
  // The hash of the path of a directory that is there, the last that was looked at for something
  // that is not.
  mutable std::atomic<std::uint64_t> last_directory_{0};
};

// All packs of a process.
class PackMounts {
 public:
  // Opens the packs that can be opened, and gives a sentence for each other.
  static std::unique_ptr<PackMounts> open(const std::vector<base::OriginSetting>& settings,
                                          std::vector<std::string>& errors);
  void add(std::unique_ptr<PackMount> mount) { mounts_.push_back(std::move(mount)); }
  bool is_empty() const { return mounts_.empty(); }
  // The size of all records of all packs.
  std::uint64_t record_bytes() const {
    std::uint64_t sum = 0;
    for (const auto& mount : mounts_) sum += mount->record_bytes();
    return sum;
  }
  // The same packs, for threads with an fd table of their own, where the numbers of these mean
  // nothing: to be called there, and used by nobody else. One that is another file by now is left
  // out. Allocates.
  std::unique_ptr<PackMounts> opened_anew() const;
  const std::vector<std::unique_ptr<PackMount>>& all() const { return mounts_; }
  // Null: none has it.
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
