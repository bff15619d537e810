// The files that a benchmark reads: all regular files below a directory, in order of their names.
// Thread safety: immutable once listed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace cube::bench {

struct File {
  std::string path;
  std::size_t size = 0;  // bytes
};

class FileSet {
 public:
  // The first `limit` files (0: all). Hidden files are none. Throws std::runtime_error where there
  // is nothing to read. `names`, if given, is a directory with the same files: it is asked for
  // names and sizes in place of `directory`.
  static FileSet list(const std::string& directory, std::size_t limit,
                      const std::string& names = {});

  const std::vector<File>& files() const { return files_; }
  std::size_t count() const { return files_.size(); }
  std::size_t bytes() const { return bytes_; }
  std::size_t largest() const { return largest_; }
  // Each file once, in an order that follows from the seed alone.
  std::vector<std::uint32_t> shuffled(std::uint64_t seed) const;

 private:
  std::vector<File> files_;
  std::size_t bytes_ = 0;
  std::size_t largest_ = 0;
};

}  // namespace cube::bench
