// A list of relative paths. sort() sorts it: a directory precedes its contents, and names are in
// the order of their bytes. The list takes as much memory as its text, plus 8 bytes for each path.
// Thread safety: as a plain value.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cache/base/path.h"

namespace cube::cache {

class TreePaths {
 public:
  void add(std::string_view path) {
    places_.push_back(text_.size());
    text_.append(path);
    text_.push_back('\0');
  }
  void sort() {
    const auto less = [this](std::uint64_t a, std::uint64_t b) { return is_before(at(a), at(b)); };
    std::sort(places_.begin(), places_.end(), less);
    const auto last =
        std::unique(places_.begin(), places_.end(),
                    [this](std::uint64_t a, std::uint64_t b) { return at(a) == at(b); });
    places_.erase(last, places_.end());
  }
  std::size_t size() const { return places_.size(); }
  std::string_view operator[](std::size_t i) const { return at(places_[i]); }

  struct Range {
    std::size_t from = 0, to = 0;
  };
  // Finds the paths within `range` that are `path` itself or lie below it. All paths of `range`
  // must lie below a directory that is also above `path`.
  Range below(std::string_view path, Range range) const {
    const auto begin = places_.begin() + static_cast<long>(range.from),
               end = places_.begin() + static_cast<long>(range.to);
    const auto first =
        std::partition_point(begin, end, [&](std::uint64_t p) { return is_before(at(p), path); });
    const auto last = std::partition_point(
        first, end, [&](std::uint64_t p) { return base::is_at_or_below(at(p), path); });
    return {static_cast<std::size_t>(first - places_.begin()),
            static_cast<std::size_t>(last - places_.begin())};
  }

 private:
  std::string_view at(std::uint64_t place) const { return text_.data() + place; }
  // A slash precedes all other bytes, so that the paths in a directory are adjacent.
  static bool is_before(std::string_view a, std::string_view b) {
    const auto rank = [](char c) {
      return c == '/' ? 0 : static_cast<int>(static_cast<unsigned char>(c));
    };
    return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(),
                                        [&](char x, char y) { return rank(x) < rank(y); });
  }

  std::string text_;
  std::vector<std::uint64_t> places_;
};

}  // namespace cube::cache
