// An Origin is the source of a prefix's files: a mounted file system, a pack or a bucket. Code that
// depends on the kind of an origin uses traits(), and never checks the type. Ownership: an Opened
// lives in the OpenedPlace of its caller, on the stack. Thread safety: an Origin is constant, and
// any number of threads may use it. An Opened belongs to one thread. All functions are
// async-signal-safe, make raw system calls only, and never call malloc.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <string_view>
#include <utility>

#include "cache/base/memory/scratch.h"
#include "cache/base/result.h"
#include "cache/base/settings/stats.h"
#include "cache/base/unique_fd.h"
#include "cache/origin/origin_span.h"
#include "cache/record/file_stat.h"
#include "cache/record/record.h"

namespace cube::cache {

class Listing;

// A file's description by its origin, before its bytes are read.
struct FileAtOrigin {
  FileStat stat{};
  bool is_physical = false;  // no part of the path is a symbolic link
  OriginId origin = k_mounts;
  bool is_immutable = false;  // see Origin::Traits
  int fd = -1;                // the file, open for reading, for questions to the kernel; -1: none
  bool is_in_ram = false;     // the origin has put the file's record into RAM
  // Whether Origin::fetch_blocks can fetch the file in blocks.
  bool comes_in_blocks = false;
  bool can_fill_ahead = false;  // OriginOpen::is_ahead works
  bool is_private = false;      // the path leads other processes to other files
};

// One open file of an origin.
class Opened {
 public:
  Opened() = default;
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  virtual ~Opened() = default;

  const FileAtOrigin& file() const { return file_; }
  // Copies the whole file into `to`, which must have room for file().stat.size bytes. ESTALE: the
  // file does not match its stat. EINTR: a signal ended the wait. Other errors are those of the
  // origin. The fd stays at offset 0.
  virtual base::Result<void> read_whole(std::byte* to) = 0;
  // The xxh3 of the file's bytes, if the origin has a hash and has checked the bytes against it.
  virtual std::optional<std::uint64_t> data_hash() const { return std::nullopt; }
  // Asks the origin whether the file is unchanged since file() was taken.
  virtual bool is_unchanged() = 0;
  // Returns a kernel fd of the file, or of a copy of it, for the program. `flags` are those of the
  // program's call.
  virtual base::Result<int> hand_over(int flags) = 0;

  // A file whose bytes were read together with the bytes of this file. Valid until the next call.
  struct Neighbour {
    std::string_view key;
    FileAtOrigin file;
    const std::byte* data = nullptr;
    std::uint64_t data_hash = 0;
  };
  virtual bool next_neighbour(Neighbour& /*neighbour*/) { return false; }
  // Makes this object the open file at another path. The place of that file must lie in
  // OriginOpen::together. False: the file cannot be read in this way, and this object is now
  // unusable.
  virtual bool move_to(std::string_view /*key*/, const OriginSpan& /*place*/) { return false; }

 protected:
  FileAtOrigin file_;
};

// Room for one Opened, and for the bytes that are read with it. A second open replaces the first
// Opened, but reuses the memory.
class OpenedPlace {
 public:
  OpenedPlace() = default;
  OpenedPlace(const OpenedPlace&) = delete;
  OpenedPlace& operator=(const OpenedPlace&) = delete;
  ~OpenedPlace() { clear(); }

  // Null: nothing has been opened.
  Opened* opened() const { return opened_; }
  template <typename T, typename... Arguments>
  T& make(Arguments&&... arguments) {
    static_assert(sizeof(T) <= k_room);
    static_assert(alignof(T) <= k_alignment);
    clear();
    T* const made = new (room_) T(std::forward<Arguments>(arguments)...);
    opened_ = made;
    return *made;
  }
  base::Scratch& scratch() { return scratch_; }

 private:
  void clear() {
    if (Opened* const opened = std::exchange(opened_, nullptr); opened != nullptr)
      opened->~Opened();
  }

  static constexpr std::size_t k_room = 1024, k_alignment = 16;
  alignas(k_alignment) std::byte room_[k_room];
  Opened* opened_ = nullptr;
  base::Scratch scratch_;
};

struct OriginOpen {
  std::string_view key;        // absolute, normalized path of the file
  const char* path = nullptr;  // `key` with a terminating zero
  int flags = 0;               // the flags of the program's call
  std::uint64_t most = 0;      // bytes: a larger file is opened, but not read
  bool with_neighbours = false;
  bool may_fill = false;  // the origin may put the file's record into RAM itself
  bool is_ahead = false;  // with may_fill: no program waits; the file is read only if RAM has room
  // If `together` is not empty, one request reads the whole span, which contains several files (see
  // Opened::move_to). `place` is the place of this file.
  OriginSpan together = {}, place = {};
  base::Stats* stats = nullptr;  // counts requests to the origin; null: not counted
};

class Origin {
 public:
  struct Traits {
    // Files do not change as long as the origin has this id, so their times are not checked, and no
    // second stat is needed.
    bool is_immutable = false;
    // False: a path that the origin lacks (ENOENT) may still exist on a mount.
    bool knows_all_names = true;
    // False: if a file cannot be served, the program gets a copy of it.
    bool has_kernel_fd = true;
    // open() also reads the bytes of the file.
    bool is_whole_in_one_read = false;
    // The gateway counts the requests to this origin.
    bool is_counted_elsewhere = false;
  };

  constexpr Origin(OriginId id, const Traits& traits) : id_(id), traits_(traits) {}
  Origin(const Origin&) = delete;
  Origin& operator=(const Origin&) = delete;

  OriginId id() const { return id_; }
  const Traits& traits() const { return traits_; }

  // The stat of a path, as the program sees it. Links are followed, and the origin's server is
  // asked. `path`: the key with a terminating zero.
  virtual base::Result<FileStat> stat(std::string_view key, const char* path) const = 0;
  // Like stat, but for a file whose stat is already known from an earlier request.
  virtual base::Result<FileStat> revalidate(std::string_view key, const char* path,
                                            const FileStat& /*known*/) const {
    return stat(key, path);
  }
  // Opens the file of `wish`, and puts its Opened into `place`. EISDIR: it is not a regular file,
  // and file() of the Opened describes it. After any other error, `place` may contain an Opened,
  // but only its next_neighbour() may be called.
  virtual base::Result<void> open(const OriginOpen& wish, OpenedPlace& place) const = 0;
  // The place of this file in an origin where one request can read several files. Reads no file.
  // Empty: the place is not known.
  virtual OriginSpan place_of(std::string_view /*key*/) const { return {}; }
  // Two functions for a file that is fetched in blocks, in the version with this stat. fetch_blocks
  // fetches the bytes [begin, end) into the file's chunks (region/large/chunks.h), and starts to
  // fetch the bytes up to `ahead_end`. fetch_blocks returns 0 or an errno; ENOSPC means that the
  // chunks have no room. copy_of returns a kernel file with all bytes.
  virtual int fetch_blocks(std::string_view /*key*/, const FileStat& /*stat*/,
                           std::uint64_t /*begin*/, std::uint64_t /*end*/,
                           std::uint64_t /*ahead_end*/) const {
    return ENOTSUP;
  }
  virtual base::Result<base::UniqueFd> copy_of(std::string_view /*key*/, const FileStat& /*stat*/,
                                               int /*flags*/) const {
    return base::fail(ENOTSUP);
  }
  // Lists a directory. The caller must end the listing by release(). ENOENT: the kernel must list
  // the directory.
  virtual base::Result<Listing*> list(std::string_view key) const = 0;

 protected:
  ~Origin() = default;

 private:
  OriginId id_;
  Traits traits_;
};

}  // namespace cube::cache
