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

// Returns false if the text is not a page, or is damaged.
bool parse_list_page(std::string_view xml, ListPage& page);

std::string_view without_quotes(std::string_view etag);

}  // namespace cube::s3
