#include "cache/base/settings/config_lists.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <utility>

#include "cache/base/path.h"

namespace cube::base {
namespace {

// Calls use(item) for each item of the list, until `use` returns false. Returns the last result of
// `use`.
template <typename Use>
bool for_each_item(std::string_view list, char separator, Use&& use) {
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t end = std::min(list.find(separator, at), list.size());
    if (!use(list.substr(at, end - at))) return false;
    at = end + 1;
  }
  return true;
}

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '-';
}

// Adds the port to a server without one: "10.0.0.1", "cache-1:11211", "[fd00::1]:11211". A Unix
// socket ("/run/m.sock") stays as it is. False: the text is not a server.
bool server_of(std::string_view text, std::string& server) {
  constexpr std::string_view k_port = "11211";
  constexpr std::size_t k_longest = 255;
  std::string_view host = text, port = k_port;
  if (text.starts_with('/')) {
    constexpr std::size_t k_longest_path = 107;
    server = text;
    return text.size() > 1 && text.size() <= k_longest_path;
  }
  const bool is_bracketed = text.starts_with('[');
  const std::size_t host_end = is_bracketed ? text.find(']') : text.find(':');
  if (is_bracketed && host_end == std::string_view::npos) return false;
  if (host_end != std::string_view::npos) {
    host = text.substr(0, host_end + (is_bracketed ? 1 : 0));
    std::string_view rest = text.substr(host.size());
    if (!rest.empty() && !rest.starts_with(':')) return false;
    if (!rest.empty()) port = rest.substr(1);
  }
  const auto allowed = [&](char c) {
    return is_word(c) || (is_bracketed ? c == ':' || c == '[' || c == ']' : c == '_');
  };
  std::uint64_t number = 0;
  if (host.size() <= (is_bracketed ? 2U : 0U) || host.size() > k_longest ||
      !std::ranges::all_of(host, allowed))
    return false;
  if (!parse_number(port, number) || number < 1 || number > 65535) return false;
  server = fmt::format("{}:{}", host, number);
  return true;
}

// Removes trailing slashes: "s3://bucket/a/b/" -> "s3://bucket/a/b". False: the text is not the URL
// of a bucket.
bool bucket_of(std::string_view text, std::string& url) {
  constexpr std::string_view k_scheme = "s3://";
  if (!text.starts_with(k_scheme)) return false;
  while (text.size() > k_scheme.size() && text.ends_with('/')) text.remove_suffix(1);
  const std::string_view bucket =
      text.substr(k_scheme.size(), text.find('/', k_scheme.size()) - k_scheme.size());
  if (bucket.empty() || !is_name(bucket)) return false;
  url = text;
  return true;
}

}  // namespace

bool parse_number(std::string_view text, std::uint64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() && !text.empty();
}

bool is_name(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return is_word(c) || c == '_'; });
}

void keep_outermost(config_types::Prefixes& value) {
  std::sort(value.begin(), value.end());
  config_types::Prefixes kept;
  for (auto& prefix : value) {
    const bool covered = std::any_of(kept.begin(), kept.end(),
                                     [&](const auto& k) { return is_at_or_below(prefix, k); });
    if (!covered) kept.push_back(std::move(prefix));
  }
  value = std::move(kept);
}

bool ParseList::Prefixes(std::string_view text, config_types::Prefixes& value) {
  const bool are_usable = for_each_item(text, ':', [&](std::string_view item) {
    std::string prefix;
    if (item.empty()) return true;
    // "/" is refused, because it contains /proc and /dev, whose files are not ordinary files.
    if (!normalize_prefix(item, prefix) || prefix == "/") return false;
    value.push_back(std::move(prefix));
    return true;
  });
  keep_outermost(value);
  return are_usable;
}

bool ParseList::Origins(std::string_view text, config_types::Origins& value) {
  const bool are_usable = for_each_item(text, ':', [&](std::string_view item) {
    if (item.empty()) return true;
    const std::size_t sign = item.find('=');
    OriginSetting origin;
    if (sign == std::string_view::npos || sign + 1 == item.size() || item.size() - sign >= PATH_MAX)
      return false;
    if (!normalize_prefix(item.substr(0, sign), origin.prefix) || origin.prefix == "/")
      return false;
    if (std::any_of(value.begin(), value.end(),
                    [&](const auto& p) { return p.prefix == origin.prefix; }))
      return false;
    origin.file = item.substr(sign + 1);
    value.push_back(std::move(origin));
    return true;
  });
  // Sorts the longest prefix first, so that the innermost prefix answers.
  std::stable_sort(value.begin(), value.end(),
                   [](const auto& a, const auto& b) { return a.prefix.size() > b.prefix.size(); });
  return are_usable;
}

bool ParseList::Buckets(std::string_view text, config_types::Buckets& value) {
  // With this limit, a mailbox row has room for the prefix, the URL, and a key of 1,024 bytes.
  constexpr std::size_t k_longest = 760;
  while (!text.empty()) {
    // A colon ends an item if another prefix follows it.
    std::size_t end = text.find(":/");
    while (end != std::string_view::npos && text.substr(end).starts_with("://"))
      end = text.find(":/", end + 1);
    std::string_view item = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    while (item.ends_with(':')) item.remove_suffix(1);
    const std::size_t sign = item.find('=');
    OriginSetting bucket;
    if (sign == std::string_view::npos || item.size() > k_longest ||
        !normalize_prefix(item.substr(0, sign), bucket.prefix) || bucket.prefix == "/" ||
        std::ranges::find(value, bucket.prefix, &OriginSetting::prefix) != value.end() ||
        !bucket_of(item.substr(sign + 1), bucket.file))
      return false;
    value.push_back(std::move(bucket));
  }
  return true;
}

bool ParseList::Servers(std::string_view text, ServerList& value) {
  constexpr std::size_t k_most_servers = 64;
  constexpr std::string_view k_scheme = "memcached://";
  if (text.empty()) return true;
  if (!text.starts_with(k_scheme)) return false;
  text.remove_prefix(k_scheme.size());
  return for_each_item(text, ',', [&](std::string_view item) {
    std::string server;
    if (!server_of(item, server) || value.texts.size() == k_most_servers ||
        std::ranges::find(value.texts, server) != value.texts.end())
      return false;
    value.texts.push_back(std::move(server));
    return true;
  });
}

bool ParseList::OriginIds(std::string_view text, config_types::OriginIds& value) {
  return Origins(text, value);
}

bool normalize_prefix(std::string_view text, std::string& prefix) {
  if (!text.starts_with('/') || text.size() >= PATH_MAX) return false;
  std::string result;
  const bool is_plain = for_each_item(text, '/', [&](std::string_view part) {
    if (!part.empty() && part != ".") result.append("/").append(part);
    return part != "..";
  });
  if (!is_plain) return false;
  prefix = result.empty() ? "/" : std::move(result);
  return true;
}

}  // namespace cube::base
