// A bucket, or a part of a bucket, as a directory tree. The class maps paths to objects, and
// computes the stats of objects and directories. The library and the gateway compute the same stats
// from the same listing. So a record that the gateway writes passes the checks of the library, and
// vice versa. Thread safety: immutable. Async-signal-safe, except the constructor, which allocates.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cache/base/path.h"
#include "cache/record/file_stat.h"
#include "cache/record/record.h"

namespace cube::cache {

// An object, as described by a listing or by the headers of an answer.
struct ObjectInfo {
  std::uint64_t size = 0;
  std::int64_t modified = 0;    // Last-Modified: seconds since 1970
  std::uint32_t etag_mark = 0;  // mark_of_etag

  friend bool operator==(const ObjectInfo&, const ObjectInfo&) = default;
};

// A hash of an ETag, below 2^29. Quotes around the ETag do not change the hash.
std::uint32_t mark_of_etag(std::string_view etag);

class BucketMount {
 public:
  // Sets the hash of the store and the credentials (gateway_start::store_mark) for all mounts of
  // this process. Call it once, before the first mount is constructed.
  static void use_store(std::uint64_t mark);
  static std::uint64_t store();

  // `url`: s3://BUCKET, or s3://BUCKET/PREFIX without a slash at its end.
  BucketMount(std::string prefix, std::string url);

  const std::string& prefix() const { return prefix_; }
  const std::string& url() const { return url_; }
  bool covers(std::string_view path) const { return base::is_at_or_below(path, prefix_); }
  // The part of a covered path below the prefix; empty for the prefix itself.
  std::string_view below(std::string_view path) const {
    path.remove_prefix(std::min(path.size(), prefix_.size() + 1));
    return path;
  }
  // The id depends only on the prefix, the URL and the store mark. So all processes that use this
  // store with these credentials have the same id, on every node.
  OriginId origin_id() const { return id_; }
  // A regular file of mode 0444. The mtime is the object's Last-Modified. The ctime has the same
  // seconds as the mtime, and the ETag's hash as its nanoseconds.
  FileStat stat_of_object(std::string_view below, const ObjectInfo& object) const;
  // The inverse of stat_of_object.
  static ObjectInfo object_of(const FileStat& stat) {
    return {stat.size, stat.modified.seconds, stat.changed.nanoseconds};
  }
  // A directory of mode 0555. All its times are 0, because stores keep no times for directories.
  FileStat stat_of_directory(std::string_view below) const;

 private:
  FileStat stat_of(std::string_view below) const;

  std::string prefix_, url_;
  OriginId id_;
  std::uint64_t url_hash_;
  std::uint32_t user_, group_;
};

}  // namespace cube::cache
