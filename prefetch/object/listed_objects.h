// Gathers the pages of a listing of a directory in a bucket, and publishes them to the node as one
// record. Used by the gateway only, because it allocates memory. Thread safety: an object belongs
// to one thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/bucket/bucket_mount.h"
#include "cache/bucket/object_names.h"
#include "cache/metadata/mount_metadata.h"

namespace cube::prefetch {

class ListedObjects {
 public:
  // Returns true if RAM has a listing of this directory that was made at or after `since_ns`
  // (base::boot_ns).
  static bool is_there(const cache::RamTier& ram, const cache::BucketMount& mount,
                       std::string_view below, std::uint64_t since_ns);

  // Adds an object; `name` is the part of its key after the directory. Objects may be added in any
  // order. Names that cannot be part of a path are left out: "", ".", "..", and names with a slash,
  // a zero byte or more than NAME_MAX bytes.
  void add_object(std::string_view name, const cache::ObjectInfo& object) {
    add(name, false, object);
  }
  // Adds a directory; `name` has no slash at its end.
  void add_directory(std::string_view name) { add(name, true, {}); }
  std::uint64_t count() const { return rows_.size(); }
  std::uint64_t left_out() const { return left_out_; }
  // The number of objects that are hidden by a directory of the same name. Known after publish().
  std::uint64_t hidden() const { return hidden_; }

  // If RAM has a record with the same entries, keeps that record. `looked_ns`: the time
  // (base::boot_ns) before the first page was requested. Returns ENOSPC if there is no room and the
  // eviction of all files that no program has open would not make enough.
  base::Result<void> publish(cache::MountMetadata& metadata, cache::RamTier& ram,
                             const cache::BucketMount& mount, std::string_view below,
                             std::uint64_t looked_ns);

 private:
  struct Row {
    std::size_t name_at = 0;
    std::uint32_t name_length = 0;
    bool is_directory = false;
    cache::ObjectInfo object;
  };
  void add(std::string_view name, bool is_directory, const cache::ObjectInfo& object);
  std::string_view name_of(const Row& row) const {
    return std::string_view(names_).substr(row.name_at, row.name_length);
  }
  void sort();

  std::string names_;
  std::vector<Row> rows_;
  std::uint64_t left_out_ = 0, hidden_ = 0;
};

}  // namespace cube::prefetch
