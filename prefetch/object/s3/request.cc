#include "prefetch/object/s3/request.h"

#include <algorithm>

#include "prefetch/object/s3/uri.h"

namespace cube::s3 {

std::string canonical_query(const Pairs& query) {
  Pairs encoded;
  for (const auto& [name, value] : query)
    encoded.emplace_back(percent_encoded(name), percent_encoded(value));
  std::ranges::sort(encoded);
  std::string text;
  for (const auto& [name, value] : encoded) {
    if (!text.empty()) text += '&';
    text.append(name).append("=").append(value);
  }
  return text;
}

std::string HttpRequest::url() const {
  const std::string text = canonical_query(query);
  return scheme + "://" + host + path + (text.empty() ? "" : "?" + text);
}

}  // namespace cube::s3
