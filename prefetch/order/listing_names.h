// The files of a directory, in the order in which a program reads them: that of the listing, or
// that of the names, as far as those that it has read already tell. Thread safety: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cache/origin/origins.h"

namespace cube::prefetch {

class ListingNames {
 public:
  // Reads them; false where there are more than so many, or it cannot be listed.
  bool read(const std::string& directory, const cache::Origins* origins, std::size_t most);
  // By name, if what was read comes first by name, and does not in the listing.
  void choose_order(const std::function<bool(const std::string& path)>& was_read);
  // False: there are no more.
  bool next(std::string& path);
  std::size_t size() const { return names_.size(); }

 private:
  std::string directory_;
  std::vector<std::string> names_;
  std::size_t at_ = 0;
};

}  // namespace cube::prefetch
