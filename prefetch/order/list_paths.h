// The paths of a list, handled by text alone. Thread safety: pure functions and plain values.
#pragma once

#include <set>
#include <string>
#include <string_view>

namespace cube::prefetch {

enum class Folded { ok, empty, too_long };
// Makes `text` absolute (below `base` if it is relative) and removes "//", ".", ".." and a final
// slash. When the program opens the same file, the cache uses the same path, except if a symbolic
// link precedes a "..".
Folded fold_path(std::string_view base, std::string_view text, std::string& path);

// A set of paths that are left out, together with everything below them.
class Exclusions {
 public:
  // Returns false if the set is full.
  bool add(std::string_view path);
  bool cover(std::string_view path) const;

 private:
  static constexpr std::size_t k_most_bytes = 4 << 20;
  std::set<std::string, std::less<>> paths_;
  std::size_t bytes_ = 0;
};

}  // namespace cube::prefetch
