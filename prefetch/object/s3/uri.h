// Names of objects: s3://bucket/key, and the percent encoding of SigV4. Thread safety: pure
// functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace cube::s3 {

struct ObjectName {
  std::string bucket, key;  // the key may be empty
};
bool is_s3_uri(std::string_view text);
// Returns empty if the text is not of the form s3://BUCKET[/KEY]. The key is not decoded.
std::optional<ObjectName> parse_s3_uri(std::string_view text);

// Percent-encodes every byte except letters, digits, -._~ and the bytes of `keep`.
std::string percent_encoded(std::string_view text, std::string_view keep = {});
std::string lower_case(std::string_view text);
// Returns the text without white space at both ends.
std::string_view trimmed(std::string_view text);

}  // namespace cube::s3
