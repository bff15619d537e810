// Names answers stat, readlink and listings for a prefix whose files the kernel does not have. It
// never returns file bytes. ENOENT means that this prefix lacks the name; the kernel may still have
// a file at that path. Other errors are those of a file system: ENOTDIR, ELOOP, ENAMETOOLONG, EIO,
// ENOMEM. Keys are absolute paths at or below the prefix. Everything below such a prefix is
// read-only for programs. Thread safety: nothing changes after it was made. All of it is
// async-signal-safe, uses raw system calls, and allocates nothing by malloc.
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
  // A link at the end of a path. Links before the last component are always followed.
  enum class Follow : std::uint8_t { nothing, last };
  // The file system that the names make up, for statfs.
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
  // The real place of the key, below the prefix and all links followed: its length in `below`,
  // which has room for PATH_MAX bytes.
  virtual base::Result<std::size_t> real_path(std::string_view key, char* below) const = 0;
  // The same for a key with ".." in it. A link at its end is not followed. ENOENT: it leads out of
  // the prefix.
  virtual base::Result<std::size_t> resolve(std::string_view key, char* below) const = 0;
  // The target of a link, without a zero: its length in `target`, which has room for PATH_MAX
  // bytes. EINVAL: it is no link.
  virtual base::Result<std::size_t> read_link(std::string_view key, char* target) const = 0;
  // To be ended by release(). `with_names`: else it has no entries.
  virtual base::Result<Listing*> list(std::string_view key, Follow follow,
                                      bool with_names) const = 0;
  // A kernel file like this one, for a program that needs the kernel's. `flags` are the program's.
  // EISDIR: it is a directory.
  virtual base::Result<base::UniqueFd> open_copy(std::string_view key, int flags) const = 0;
  virtual Volume volume() const = 0;

 private:
  std::string prefix_;
};

}  // namespace cube::cache
