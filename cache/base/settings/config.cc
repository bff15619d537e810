#include "cache/base/settings/config.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <climits>
#include <limits>
#include <string>
#include <utility>

#include "cache/base/settings/config_lists.h"

namespace cube::base {
namespace {

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

// One function for each type in config.def that is not a list. False: the text is not a valid value
// of the type.
struct Parse : ParseList {
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
  if (const char* const packs = lookup("CUBESHIM_PACKS");
      packs != nullptr && std::string_view(packs).find("=s3://") != std::string_view::npos)
    parsed.errors.emplace_back(
        "CUBESHIM_PACKS: a pack that lies in a bucket cannot be read there: fetch it by `cubeshim "
        "cat "
        "s3://BUCKET/KEY > FILE`, and name that file");
  for (const auto& origin : parsed.config.origins) parsed.config.prefixes.push_back(origin.prefix);
  for (const auto& bucket : parsed.config.buckets) parsed.config.prefixes.push_back(bucket.prefix);
  keep_outermost(parsed.config.prefixes);
  // Reports a size that was given without a directory. Does not report the default size. Also
  // reports nothing if an error in the size or in the directory is already reported.
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
  // K, KB and KiB mean the same unit. "i" is allowed only after a unit letter, and "B" also after a
  // number.
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

}  // namespace cube::base
