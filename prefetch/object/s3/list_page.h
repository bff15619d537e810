// One page of ListObjectsV2. Thread safety: pure functions over plain values.
#pragma once

#include <cstdint>
#include <ctime>
#include <string>
#include <string_view>
#include <vector>

namespace cube::s3 {

struct ListedObject {
  std::string key;
  std::uint64_t size = 0;
  std::time_t modified = 0;
  std::string etag;  // without its quotes
};

struct ListPage {
  std::vector<ListedObject> objects;
  std::vector<std::string> prefixes;  // directories, with their trailing '/'
  std::string next_token;             // empty: this was the last page
};

// False: not a page, or a damaged one.
bool parse_list_page(std::string_view xml, ListPage& page);

std::string_view without_quotes(std::string_view etag);

}  // namespace cube::s3
