#include "cache/base/settings/config.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <climits>
#include <limits>
#include <string>
#include <utility>

#include "cache/base/path.h"

namespace cube::base {
namespace {

bool parse_number(std::string_view text, std::uint64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() && !text.empty();
}

// Calls use(item) for each item of the list until it returns false, and returns its last result.
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

template <typename T>
struct Choice {
  std::string_view name;
  T value;
};

template <typename T, std::size_t N>
bool choose(std::string_view text, const Choice<T> (&choices)[N], T& value) {
  for (const auto& choice : choices) {
    if (choice.name != text) continue;
    value = choice.value;
    return true;
  }
  return false;
}

bool share_or_bytes(std::string_view text, std::uint64_t most_percent, std::uint64_t least_bytes,
                    RamSize& value) {
  RamSize parsed;
  parsed.is_percent = text.ends_with('%');
  if (parsed.is_percent) {
    if (!parse_number(text.substr(0, text.size() - 1), parsed.value) || parsed.value < 1 ||
        parsed.value > most_percent)
      return false;
  } else if (!parse_bytes(text, parsed.value) || parsed.value < least_bytes) {
    return false;
  }
  value = parsed;
  return true;
}

// A prefix within another adds nothing: the wider one covers it.
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

// "10.0.0.1", "cache-1:11211", "[fd00::1]:11211" -> the same with a port; "/run/m.sock", a Unix
// socket, stays as it is. False: the text is not a server.
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

bool is_name(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return is_word(c) || c == '_'; });
}

// "s3://bucket/a/b/" -> without the slash at its end.
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

// One function for each type named in config.def. False: the type does not take this value.
struct Parse {
  static bool Prefixes(std::string_view text, config_types::Prefixes& value) {
    const bool are_usable = for_each_item(text, ':', [&](std::string_view item) {
      std::string prefix;
      if (item.empty()) return true;
      // "/" is refused, because /proc and /dev lie below it, and their files are not ordinary
      // files.
      if (!normalize_prefix(item, prefix) || prefix == "/") return false;
      value.push_back(std::move(prefix));
      return true;
    });
    keep_outermost(value);
    return are_usable;
  }
  static bool Origins(std::string_view text, config_types::Origins& value) {
    const bool are_usable = for_each_item(text, ':', [&](std::string_view item) {
      if (item.empty()) return true;
      const std::size_t sign = item.find('=');
      OriginSetting origin;
      if (sign == std::string_view::npos || sign + 1 == item.size() ||
          item.size() - sign >= PATH_MAX)
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
    // Longest first: the innermost prefix answers.
    std::stable_sort(value.begin(), value.end(), [](const auto& a, const auto& b) {
      return a.prefix.size() > b.prefix.size();
    });
    return are_usable;
  }
  static bool Buckets(std::string_view text, config_types::Buckets& value) {
    // A mailbox row then has room for prefix and URL, and for a key of 1,024 bytes.
    constexpr std::size_t k_longest = 760;
    while (!text.empty()) {
      // A colon ends an item if another prefix follows.
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
  static bool Servers(std::string_view text, ServerList& value) {
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
  static bool OriginIds(std::string_view text, config_types::OriginIds& value) {
    return Origins(text, value);
  }
  static bool Milliseconds(std::string_view text, Duration& value) {
    std::uint64_t number = 0;
    const bool is_ms = text.ends_with("ms");
    if (!is_ms && !text.ends_with('s')) return false;
    if (!parse_number(text.substr(0, text.size() - (is_ms ? 2 : 1)), number) || number > 10'000)
      return false;
    value.ms = is_ms ? number : number * 1000;
    return value.ms >= 1 && value.ms <= 10'000;
  }
  static bool Mode(std::string_view text, base::Mode& value) {
    static constexpr Choice<base::Mode> k_choices[] = {{"virtual", base::Mode::virtual_files},
                                                       {"real", base::Mode::real_files},
                                                       {"off", base::Mode::off}};
    return choose(text, k_choices, value);
  }
  static bool Name(std::string_view text, std::string& value) {
    if (text.empty() || text.size() > 64 || !is_name(text)) return false;
    value = text;
    return true;
  }
  static bool RamSize(std::string_view text, base::RamSize& value) {
    return share_or_bytes(text, 100, 8 << 20, value);
  }
  static bool RingSize(std::string_view text, base::RamSize& value) {
    return share_or_bytes(text, 50, 1, value);
  }
  static bool DiskSize(std::string_view text, base::RamSize& value) {
    return share_or_bytes(text, 100, 4 << 20, value);
  }
  static bool Directory(std::string_view text, std::string& value) {
    if (text.empty()) return true;
    return normalize_prefix(text, value);
  }
  static bool Switch(std::string_view text, bool& value) {
    static constexpr Choice<bool> k_choices[] = {{"0", false}, {"1", true}};
    return choose(text, k_choices, value);
  }
  static bool Bytes(std::string_view text, std::uint64_t& value) {
    return parse_bytes(text, value);
  }
  static bool BlockSize(std::string_view text, std::uint64_t& value) {
    if (!parse_bytes(text, value)) return false;
    return value == 0 || (std::has_single_bit(value) && value >= 4096 && value <= (2 << 20));
  }
  static bool Consistency(std::string_view text, base::Consistency& value) {
    static constexpr Choice<ConsistencyKind> k_choices[] = {
        {"immutable", ConsistencyKind::immutable}, {"open", ConsistencyKind::open}};
    base::Consistency parsed;
    if (text.starts_with("ttl:")) {
      parsed.kind = ConsistencyKind::ttl;
      if (!parse_number(text.substr(4), parsed.ttl_seconds) || parsed.ttl_seconds > UINT32_MAX)
        return false;
    } else if (!choose(text, k_choices, parsed.kind)) {
      return false;
    }
    value = parsed;
    return true;
  }
  static bool Text(std::string_view text, std::string& value) {
    value = text;
    return !text.empty() && text.size() < PATH_MAX;
  }
  static bool StatsFormat(std::string_view text, base::StatsFormat& value) {
    static constexpr Choice<base::StatsFormat> k_choices[] = {
        {"text", base::StatsFormat::text},
        {"classic", base::StatsFormat::classic},
        {"json", base::StatsFormat::json}};
    return choose(text, k_choices, value);
  }
  static bool Seconds(std::string_view text, std::uint64_t& value) {
    return parse_number(text, value) && value <= UINT32_MAX;
  }
  static bool Interval(std::string_view text, std::uint64_t& value) {
    static constexpr Choice<std::uint64_t> k_choices[] = {{"auto", 60}, {"off", 0}};
    return choose(text, k_choices, value) || Seconds(text, value);
  }
  static bool MetadataTtl(std::string_view text, base::MetadataTtl& value) {
    using Kind = base::MetadataTtl::Kind;
    static constexpr Choice<Kind> k_choices[] = {{"auto", Kind::automatic}, {"job", Kind::job}};
    base::MetadataTtl parsed;
    if (!choose(text, k_choices, parsed.kind)) {
      parsed.kind = Kind::seconds;
      if (!parse_number(text, parsed.seconds) || parsed.seconds > UINT32_MAX) return false;
    }
    value = parsed;
    return true;
  }
  static bool Depth(std::string_view text, unsigned& value) {
    std::uint64_t parsed = 0;
    if (!parse_number(text, parsed) || parsed < 1 || parsed > 256) return false;
    value = static_cast<unsigned>(parsed);
    return true;
  }
  static bool S3Addressing(std::string_view text, base::S3Addressing& value) {
    static constexpr Choice<base::S3Addressing> k_choices[] = {
        {"auto", base::S3Addressing::automatic},
        {"path", base::S3Addressing::path},
        {"virtual", base::S3Addressing::virtual_host}};
    return choose(text, k_choices, value);
  }

  static bool IoEngine(std::string_view text, EngineKind& value) {
    static constexpr Choice<EngineKind> k_choices[] = {{"auto", EngineKind::automatic},
                                                       {"uring", EngineKind::uring},
                                                       {"threads", EngineKind::threads}};
    return choose(text, k_choices, value);
  }
  static bool Log(std::string_view text, LogLevel& value) {
    static constexpr Choice<LogLevel> k_choices[] = {{"error", LogLevel::error},
                                                     {"warn", LogLevel::warn},
                                                     {"info", LogLevel::info},
                                                     {"debug", LogLevel::debug}};
    return choose(text, k_choices, value);
  }
};

template <typename T, typename Parser>
void read_row(const ConfigRow& row, const char* text, Parser parse, T& field, IfWrong if_wrong,
              std::vector<std::string>& errors) {
  parse(row.default_text, field);
  if (text == nullptr || *text == '\0') return;
  T parsed{};
  if (parse(std::string_view(text), parsed)) {
    field = std::move(parsed);
    return;
  }
  std::string line = fmt::format("{}=\"{}\" is not usable: it takes {}", row.variable,
                                 for_a_line(text), row.takes);
  if (if_wrong == IfWrong::use_default)
    line += row.default_text.empty() ? std::string("; using none")
                                     : fmt::format("; using \"{}\"", row.default_text);
  errors.push_back(std::move(line));
}

}  // namespace

std::string for_a_line(std::string_view value) {
  constexpr std::size_t k_longest = 200;
  std::string line(value.substr(0, k_longest));
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) c = '?';
  }
  return value.size() > k_longest ? line + "..." : line;
}

const std::vector<ConfigRow>& config_rows() {
  static const auto* rows = new std::vector<ConfigRow>{
#define CUBE_CONFIG(type, field, variable, default_text, takes, help) \
  {variable, default_text, takes, help},
#include "cache/base/settings/config.def"
#undef CUBE_CONFIG
  };
  return *rows;
}

namespace {
const ConfigRow& row_of(std::string_view variable) {
  return *std::ranges::find(config_rows(), variable, &ConfigRow::variable);
}
}  // namespace

ParsedConfig parse_config(const Lookup& lookup, IfWrong if_wrong) {
  ParsedConfig parsed;
#define CUBE_CONFIG(type, field, variable, default_text, takes, help)                     \
  read_row(ConfigRow{variable, default_text, takes, help}, lookup(variable), Parse::type, \
           parsed.config.field, if_wrong, parsed.errors);
#include "cache/base/settings/config.def"
#undef CUBE_CONFIG
  for (const auto& origin : parsed.config.origins) parsed.config.prefixes.push_back(origin.prefix);
  for (const auto& bucket : parsed.config.buckets) parsed.config.prefixes.push_back(bucket.prefix);
  keep_outermost(parsed.config.prefixes);
  // A size without a directory is reported, unless it is the default, or size or directory are
  // wrong and have been reported already.
  RamSize no_bound;
  Parse::DiskSize(row_of("CUBESHIM_DISK").default_text, no_bound);
  if (parsed.config.disk_dir.empty() && parsed.config.disk != no_bound) {
    parsed.config.disk = no_bound;
    const char* const directory = lookup("CUBESHIM_DISK_DIR");
    if (directory != nullptr && *directory != '\0') return parsed;
    parsed.errors.push_back(
        fmt::format("CUBESHIM_DISK=\"{}\" has no effect: CUBESHIM_DISK_DIR is not set; it takes {}",
                    for_a_line(lookup("CUBESHIM_DISK")), row_of("CUBESHIM_DISK_DIR").takes));
  }
  return parsed;
}

bool is_without_mount(const Config& config, std::string_view prefix) {
  const auto has = [&](const std::vector<OriginSetting>& origins) {
    return std::ranges::find(origins, prefix, &OriginSetting::prefix) != origins.end();
  };
  return has(config.origins) || has(config.buckets);
}

bool parse_bytes(std::string_view text, std::uint64_t& bytes) {
  unsigned shift = 0;
  // K, KB and KiB mean the same; B or i alone is not a unit.
  for (const std::string_view suffix : {"iB", "B", "i"}) {
    if (!text.ends_with(suffix) || text.size() <= suffix.size()) continue;
    text.remove_suffix(suffix.size());
    if (suffix != "B" && text.find_last_of("KMGTkmgt") != text.size() - 1) return false;
    break;
  }
  constexpr std::string_view k_units = "KkMmGgTt";
  const std::size_t unit = text.empty() ? std::string_view::npos : k_units.find(text.back());
  if (unit != std::string_view::npos) {
    shift = 10 * (static_cast<unsigned>(unit) / 2 + 1);
    text.remove_suffix(1);
  }
  std::uint64_t number = 0;
  if (!parse_number(text, number) || number > (std::numeric_limits<std::uint64_t>::max() >> shift))
    return false;
  bytes = number << shift;
  return true;
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
