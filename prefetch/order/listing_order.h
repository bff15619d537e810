// The files of a directory in the order in which a program probably reads them. This is the listing
// order or the name order, whichever fits the files that the program has already read. Thread
// safety: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cache/origin/origins.h"

namespace cube::prefetch {

class ListingOrder {
 public:
  // Reads the names. Returns false if there are more than `most`, or the directory cannot be
  // listed.
  bool read(const std::string& directory, const cache::Origins* origins, std::size_t most);
  // Sorts the files by name if the files already read are the first ones in name order and are not
  // the first ones in listing order.
  void choose_order(const std::function<bool(const std::string& path)>& was_read);
  // Returns false if there are no more.
  bool next(std::string& path);
  std::size_t size() const { return names_.size(); }

 private:
  std::string directory_;
  std::vector<std::string> names_;
  std::size_t at_ = 0;
};

}  // namespace cube::prefetch
