#include "prefetch/order/list_paths.h"

#include <algorithm>
#include <climits>

namespace cube::prefetch {

Folded fold_path(std::string_view base, std::string_view text, std::string& path) {
  if (text.empty()) return Folded::empty;
  path.assign(text.front() == '/' ? std::string_view() : base);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('/', at), text.size());
    const std::string_view part = text.substr(at, end - at);
    at = end + 1;
    if (part.empty() || part == ".") continue;
    if (part == "..") {
      path.resize(std::min(path.rfind('/'), path.size()));
      continue;
    }
    if (path.size() + 1 + part.size() >= PATH_MAX) return Folded::too_long;
    path += '/';
    path += part;
  }
  if (path.empty()) path = "/";
  return Folded::ok;
}

bool Exclusions::add(std::string_view path) {
  constexpr std::size_t k_node = 80;  // bytes of a node of the set, without the text
  if (bytes_ + path.size() + k_node > k_most_bytes) return false;
  if (paths_.emplace(path).second) bytes_ += path.size() + k_node;
  return true;
}

bool Exclusions::cover(std::string_view path) const {
  if (paths_.empty()) return false;
  for (std::size_t end = path.find('/', 1); end != std::string_view::npos;
       end = path.find('/', end + 1)) {
    if (paths_.contains(path.substr(0, end))) return true;
  }
  return paths_.contains(path);
}

}  // namespace cube::prefetch
