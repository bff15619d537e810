// The disk as the file cache sees it: the bytes of a file that is not in RAM, if they are those of the stat that the origin gives
// it now. Whether the program may read it is the caller's to find out.
// Invariants: what fill() gives is what the origin held at that inode, size, mtime and ctime.
// Thread safety: all of it. fill, visit and the changes take no lock, and allocate by mmap alone.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "cache/base/config.h"
#include "cache/base/hash.h"
#include "cache/disk/disk_store.h"
#include "cache/disk/read_buffers.h"
#include "cache/ram/layout.h"

namespace cube::cache {

class DiskTier {
 public:
  // Never freed. On failure, `why` is one line for the user.
  static base::Result<DiskTier*> open(const base::Config& config, const base::ProcessId& job, std::string& why);

  // stat.size bytes to `room`, and the hash that they were checked by; nothing: there are none for it.
  std::optional<std::uint64_t> fill(std::string_view key, const FileStat& stat, std::byte* room);

  enum class Verdict : std::uint8_t {
    taken,    // the last one
    refused,  // there may be an older one that fits
    outdated  // it leaves the disk
  };
  // Shows the records of this path, newest first, until judge(record) takes one. False: it has taken none.
  template <typename Judge>
  bool visit(std::string_view key, Judge&& judge) {
    for (const DiskPlace& place : store_->find(base::hash_path(key))) {
      const auto buffer = buffers_.take(place.buffer_bytes());
      if (!buffer) continue;
      const auto record = store_->read(place, key, {buffer->data(), buffer->size()});
      if (!record) continue;
      const Verdict verdict = judge(**record);
      if (verdict == Verdict::taken) return true;
      if (verdict == Verdict::outdated) store_->drop(place, key);
    }
    return false;
  }
  // Is it proof that the bytes of this record are what the file holds, if the origin gives it this stat?
  static Verdict compare(const Record& record, const FileStat& stat);

  // The records in RAM are marked already. Async-signal-safe, as the next two.
  void content_changed(std::string_view key, const FileStat* stat);
  void tree_changed() { store_->distrust_all(); }
  // In a forked child: the object is then dead.
  void abandon() {
    store_->abandon();
    buffers_.forget();
  }

  // How full it is, for the report.
  void tell(RegionHeader& header) const;
  DiskStore& store() { return *store_; }

 private:
  explicit DiskTier(std::unique_ptr<DiskStore> store) : store_(std::move(store)) {}

  std::unique_ptr<DiskStore> store_;
  ReadBuffers buffers_;
};

}  // namespace cube::cache
