// The metadata of a prefix whose files the kernel does not have. The class answers stat, readlink
// and listings, and never returns the bytes of files. Keys are absolute paths at or below the
// prefix. Everything below such a prefix is read-only for programs. Thread safety: immutable after
// construction. All functions are async-signal-safe, make raw system calls only, and never call
// malloc. Errors are those of a file system: ENOENT, ENOTDIR, ELOOP, ENAMETOOLONG, EIO, ENOMEM.
// After ENOENT, the kernel may still have a file at the path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "cache/base/path.h"
#include "cache/base/result.h"
#include "cache/base/unique_fd.h"
#include "cache/record/file_stat.h"
#include "cache/record/listing.h"

namespace cube::cache {

class Metadata {
 public:
  // Whether a link at the end of a path is followed. Links before the last component are always
  // followed.
  enum class Follow : std::uint8_t { nothing, last };
  // The size of the prefix as a file system, for statfs.
  struct Volume {
    std::uint64_t bytes = 0, files = 0;
  };

  explicit Metadata(std::string prefix) : prefix_(std::move(prefix)) {}
  Metadata(const Metadata&) = delete;
  Metadata& operator=(const Metadata&) = delete;
  virtual ~Metadata() = default;

  const std::string& prefix() const { return prefix_; }
  bool covers(std::string_view key) const { return base::is_at_or_below(key, prefix_); }

  virtual base::Result<FileStat> stat(std::string_view key, Follow follow) const = 0;
  // Follows all links of the key. Writes the resulting path, relative to the prefix, to `below`,
  // which must have room for PATH_MAX bytes. Returns the length of the path.
  virtual base::Result<std::size_t> real_path(std::string_view key, char* below) const = 0;
  // Like real_path, but the key may contain "..", and a link at its end is not followed. ENOENT:
  // the key leads out of the prefix, or does not exist.
  virtual base::Result<std::size_t> resolve(std::string_view key, char* below) const = 0;
  // Writes the target of a link, without a terminating zero, to `target`, which must have room for
  // PATH_MAX bytes. Returns the length of the target. EINVAL: the key is not a link.
  virtual base::Result<std::size_t> read_link(std::string_view key, char* target) const = 0;
  // Lists a directory. If `with_names` is false, the listing has no entries. The caller must end
  // the listing by release().
  virtual base::Result<Listing*> list(std::string_view key, Follow follow,
                                      bool with_names) const = 0;
  // Opens a kernel file that is a copy of the file, for a program that needs one. `flags` are those
  // of the program's call. EISDIR: the key is a directory.
  virtual base::Result<base::UniqueFd> open_copy(std::string_view key, int flags) const = 0;
  virtual Volume volume() const = 0;

 private:
  std::string prefix_;
};

}  // namespace cube::cache
