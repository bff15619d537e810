// An HTTP request to a store, and the form of its query that is signed and sent. Thread safety:
// plain values.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace cube::s3 {

using Pairs = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method = "GET";
  std::string scheme = "https", host;  // with the port if not the default
  std::string path = "/";              // encoded
  Pairs query;                         // not encoded
  Pairs headers;                       // names in lower case

  std::string url() const;
};

// Sorts and encodes a query. The result is both signed and sent.
std::string canonical_query(const Pairs& query);

}  // namespace cube::s3
