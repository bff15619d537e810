// The names in one directory, sorted by their bytes. Each name takes 24 bytes of memory in addition
// to its own length. Thread safety: as a plain value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cache/base/result.h"

namespace cube::cache {

struct TreeName {
  std::uint64_t inode = 0;
  std::uint64_t at = 0;  // the offset of the name in the text
  std::uint16_t length = 0;
  std::uint8_t type = 0;   // DT_*
  bool is_packed = false;  // the name has become an entry of the pack
};

class TreeNames {
 public:
  // Reads the names of an open directory. If the file system does not report the type of a name,
  // the type is DT_UNKNOWN.
  static base::Result<TreeNames> list(int directory);

  void add(std::string_view name, std::uint64_t inode, std::uint8_t type);
  void sort();
  std::size_t size() const { return names_.size(); }
  TreeName& operator[](std::size_t i) { return names_[i]; }
  const TreeName& operator[](std::size_t i) const { return names_[i]; }
  // The name as text. A zero byte follows it.
  std::string_view text(std::size_t i) const {
    return {text_.data() + names_[i].at, names_[i].length};
  }
  const char* c_str(std::size_t i) const { return text_.data() + names_[i].at; }

  // The data of the directory's record, which lists the names that are packed.
  std::string listing(bool is_complete) const;

 private:
  std::string text_;
  std::vector<TreeName> names_;
};

}  // namespace cube::cache
