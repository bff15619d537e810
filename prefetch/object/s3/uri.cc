#include "prefetch/object/s3/uri.h"

#include <algorithm>

namespace cube::s3 {
namespace {

constexpr std::string_view k_scheme = "s3://";

bool is_letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

}  // namespace

bool is_s3_uri(std::string_view text) { return text.starts_with(k_scheme); }

std::optional<ObjectName> parse_s3_uri(std::string_view text) {
  if (!is_s3_uri(text)) return std::nullopt;
  text.remove_prefix(k_scheme.size());
  const std::size_t slash = std::min(text.find('/'), text.size());
  const std::string_view bucket = text.substr(0, slash);
  const bool is_good = !bucket.empty() && std::ranges::all_of(bucket, [](char c) {
    return is_letter_or_digit(c) || c == '-' || c == '.' || c == '_';
  });
  if (!is_good) return std::nullopt;
  return ObjectName{std::string(bucket),
                    std::string(text.substr(std::min(slash + 1, text.size())))};
}

std::string percent_encoded(std::string_view text, std::string_view keep) {
  constexpr char k_digits[] = "0123456789ABCDEF";
  std::string encoded;
  encoded.reserve(text.size());
  for (const char c : text) {
    if (is_letter_or_digit(c) || std::string_view("-._~").find(c) != std::string_view::npos ||
        keep.find(c) != std::string_view::npos) {
      encoded += c;
      continue;
    }
    encoded += '%';
    encoded += k_digits[static_cast<unsigned char>(c) >> 4];
    encoded += k_digits[static_cast<unsigned char>(c) & 15];
  }
  return encoded;
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (auto& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view k_space = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(k_space);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(k_space) - begin + 1);
}

}  // namespace cube::s3
