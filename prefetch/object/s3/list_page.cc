#include "prefetch/object/s3/list_page.h"

#include <utility>

#include "cache/base/words.h"
#include "prefetch/object/s3/credentials.h"
#include "prefetch/object/s3/uri.h"
#include "prefetch/object/s3/xml.h"

namespace cube::s3 {

std::string_view without_quotes(std::string_view etag) {
  etag = trimmed(etag);
  if (etag.starts_with("W/")) etag.remove_prefix(2);
  if (etag.size() >= 2 && etag.front() == '"' && etag.back() == '"')
    etag = etag.substr(1, etag.size() - 2);
  return etag;
}

bool parse_list_page(std::string_view xml, ListPage& page) {
  page = {};
  bool is_page = false, is_truncated = false;
  ListedObject object;
  XmlReader reader(xml);
  while (reader.next()) {
    std::string_view path = reader.path();
    constexpr std::string_view k_root = "ListBucketResult";
    if (path == k_root) {
      is_page = true;
      continue;
    }
    if (!path.starts_with(k_root)) return false;
    path.remove_prefix(k_root.size() + 1);
    const std::string& text = reader.text();
    if (path == "Contents/Key") {
      object.key = text;
    } else if (path == "Contents/Size") {
      const auto size = base::number_of(text);
      if (!size) return false;
      object.size = *size;
    } else if (path == "Contents/LastModified") {
      object.modified = parse_iso_time(text);
    } else if (path == "Contents/ETag") {
      object.etag = without_quotes(text);
    } else if (path == "Contents") {
      page.objects.push_back(std::exchange(object, {}));
    } else if (path == "CommonPrefixes/Prefix") {
      page.prefixes.push_back(text);
    } else if (path == "NextContinuationToken") {
      page.next_token = text;
    } else if (path == "IsTruncated") {
      is_truncated = text == "true";
    }
  }
  // Refuses a page that is not the last but has no token for the next page, because names would be
  // lost.
  if (is_truncated && page.next_token.empty()) return false;
  if (!is_truncated) page.next_token.clear();
  return reader.is_sound() && is_page;
}

}  // namespace cube::s3
