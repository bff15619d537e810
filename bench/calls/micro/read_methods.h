// The compared ways to read a whole file. All return the same bytes. Thread safety: each thread
// needs its own reader.
#pragma once

#include <sys/stat.h>

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/calls/micro/file_set.h"

namespace cube::bench {

class Reader {
 public:
  virtual ~Reader() = default;
  // Reads the whole file `index` of the set. The bytes are valid until the next call. Throws
  // std::runtime_error.
  virtual std::span<const char> read(std::uint32_t index) = 0;
};

// All files of a set in one mapped file in /dev/shm, as a cache would hold them. It is used to
// measure the cost of the copy from memory alone. A file's stat and path precede its bytes.
class Arena {
 public:
  struct Head {
    struct stat stat;
    std::size_t path_length, data_offset;  // bytes; the offset from the head
    std::string_view path() const { return {reinterpret_cast<const char*>(this + 1), path_length}; }
    const char* data() const { return reinterpret_cast<const char*>(this) + data_offset; }
  };
  explicit Arena(const FileSet& set);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  const Head& head(std::uint32_t index) const {
    return *reinterpret_cast<const Head*>(begin_ + heads_[index]);
  }
  const char* data(std::uint32_t index) const { return begin_ + data_[index]; }

 private:
  std::vector<std::size_t> heads_, data_;
  char* begin_ = nullptr;
  std::size_t bytes_ = 0;
};

// All files of a set in one file on a disk, each beginning on a page. It is used to measure the
// cost of disk reads that bypass the page cache. The file is made if it does not exist.
class DiskArena {
 public:
  DiskArena(const FileSet& set, const std::string& path);
  ~DiskArena();
  DiskArena(const DiskArena&) = delete;
  DiskArena& operator=(const DiskArena&) = delete;
  int fd() const { return fd_; }
  std::size_t offset(std::uint32_t index) const { return offsets_[index]; }

 private:
  void write(const FileSet& set, const std::string& path) const;

  std::vector<std::size_t> offsets_;
  std::size_t bytes_ = 0;
  int fd_ = -1;
};

struct Arenas {
  std::unique_ptr<Arena> memory;
  std::unique_ptr<DiskArena> disk;
};

enum class ReaderKind {
  posix,     // open, fstat, read, close
  ifstream,  // std::ifstream into a fresh std::string
  fread,     // fopen, fseek, ftell, fread, fclose
  copy,      // memcpy out of the arena, to a page
  copy_16,   // like copy, but to 16 bytes after the start of a page
  ideal,     // from the arena, looked up by the path
  direct     // one pread with O_DIRECT from the arena on the disk
};
std::unique_ptr<Reader> make_reader(ReaderKind kind, const FileSet& set, const Arenas& arenas);

}  // namespace cube::bench
