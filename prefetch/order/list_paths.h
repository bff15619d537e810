// Paths by text alone, as a list gives them. Thread safety: pure functions, and plain values.
#pragma once

#include <set>
#include <string>
#include <string_view>

namespace cube::prefetch {

enum class Folded { ok, empty, too_long };
// `text`, below `base` where it is relative, without "//", ".", ".." and a slash at its end: as the
// program's open of the same file is known to the cache, unless a symbolic link stands before a
// "..".
Folded fold_path(std::string_view base, std::string_view text, std::string& path);

// Paths that are left out, with all below them.
class Exclusions {
 public:
  // False: there are too many already.
  bool add(std::string_view path);
  bool cover(std::string_view path) const;

 private:
  static constexpr std::size_t k_most_bytes = 4 << 20;
  std::set<std::string, std::less<>> paths_;
  std::size_t bytes_ = 0;
};

}  // namespace cube::prefetch
