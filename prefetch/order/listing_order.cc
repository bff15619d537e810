#include "prefetch/order/listing_order.h"

#include <algorithm>
#include <utility>

#include "prefetch/order/dir_walk.h"

namespace cube::prefetch {

bool ListingOrder::read(const std::string& directory, const cache::Origins* origins,
                        std::size_t most) {
  directory_ = directory;
  DirWalk walk;
  walk.use_origins(origins);
  if (walk.begin(directory) != 0) return false;
  while (walk.next_file()) {
    if (names_.size() == most) return false;
    names_.push_back(walk.path().substr(directory.size() + 1));
  }
  return true;
}

void ListingOrder::choose_order(const std::function<bool(const std::string& path)>& was_read) {
  // Tolerates gaps, because workers do not read in step, and because some files might have been
  // cached before.
  const auto comes_first = [](std::size_t last, std::size_t count) { return last < 2 * count + 8; };
  std::vector<std::string> read;
  std::size_t last_listed = 0;
  for (std::size_t i = 0; i < names_.size(); ++i) {
    if (!was_read(directory_ + '/' + names_[i])) continue;
    read.push_back(names_[i]);
    last_listed = i;
  }
  if (read.size() < 2 || comes_first(last_listed, read.size())) return;
  std::vector<std::string> by_name = names_;
  std::sort(by_name.begin(), by_name.end());
  const std::string& last = *std::max_element(read.begin(), read.end());
  const auto last_by_name =
      std::lower_bound(by_name.begin(), by_name.end(), last) - by_name.begin();
  if (comes_first(static_cast<std::size_t>(last_by_name), read.size())) names_ = std::move(by_name);
}

bool ListingOrder::next(std::string& path) {
  if (at_ == names_.size()) return false;
  path = directory_ + '/' + names_[at_++];
  return true;
}

}  // namespace cube::prefetch
