// The files that a benchmark reads: all regular files below a directory, sorted by name. Thread
// safety: immutable once listed.
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
  // The first `limit` files (0: all) that are not hidden. Throws std::runtime_error if there is
  // nothing to read. If `names` is given, it is a directory with the same files, and names and
  // sizes are read from it instead of from `directory`.
  static FileSet list(const std::string& directory, std::size_t limit,
                      const std::string& names = {});

  const std::vector<File>& files() const { return files_; }
  std::size_t count() const { return files_.size(); }
  std::size_t bytes() const { return bytes_; }
  std::size_t largest() const { return largest_; }
  // Returns the indices of all files, in an order that depends only on the seed.
  std::vector<std::uint32_t> shuffled(std::uint64_t seed) const;

 private:
  std::vector<File> files_;
  std::size_t bytes_ = 0;
  std::size_t largest_ = 0;
};

}  // namespace cube::bench
