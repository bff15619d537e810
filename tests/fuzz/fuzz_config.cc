// Arbitrary text in any variable must not cause a crash. A wrong value must be replaced by the
// default and cause one line that is safe for a terminal. A valid value must stay the same when it
// is written out and read back. Input: an environment, "NAME=VALUE" entries with a zero between
// them.
#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "cache/base/process/process_id.h"
#include "cache/base/settings/config.h"
#include "tests/fuzz/fuzz.h"

namespace cube::base {
namespace {

using Variables = std::map<std::string, std::string, std::less<>>;

ParsedConfig parse(const Variables& variables) {
  return parse_config([&](const char* name) -> const char* {
    const auto at = variables.find(name);
    return at == variables.end() ? nullptr : at->second.c_str();
  });
}

// Turns the prefixes back into the text that a user would have written.
std::string text_of(const std::vector<std::string>& prefixes) {
  std::string text;
  for (const auto& prefix : prefixes) text += (text.empty() ? "" : ":") + prefix;
  return text;
}
std::string text_of(const std::vector<OriginSetting>& packs) {
  std::string text;
  for (const auto& pack : packs) text += (text.empty() ? "" : ":") + pack.prefix + "=" + pack.file;
  return text;
}
std::string text_of(const ServerList& servers) {
  std::string text;
  for (const auto& server : servers.texts) text += (text.empty() ? "memcached://" : ",") + server;
  return text;
}
std::string text_of(const Duration& time) { return std::to_string(time.ms) + "ms"; }
std::string text_of(Mode mode) {
  return mode == Mode::off ? "off" : mode == Mode::real_files ? "real" : "virtual";
}
std::string text_of(const std::string& text) { return text; }
std::string text_of(const RamSize& size) {
  return std::to_string(size.value) + (size.is_percent ? "%" : "");
}
std::string text_of(const MetadataTtl& ttl) {
  using Kind = MetadataTtl::Kind;
  return ttl.kind == Kind::automatic ? "auto"
         : ttl.kind == Kind::job     ? "job"
                                     : std::to_string(ttl.seconds);
}
std::string text_of(bool on) { return on ? "1" : "0"; }
std::string text_of(std::uint64_t number) { return std::to_string(number); }
std::string text_of(unsigned number) { return std::to_string(number); }
std::string text_of(EngineKind engine) {
  return engine == EngineKind::uring ? "uring" : engine == EngineKind::threads ? "threads" : "auto";
}
std::string text_of(const Consistency& c) {
  if (c.kind == ConsistencyKind::ttl) return "ttl:" + std::to_string(c.ttl_seconds);
  return c.kind == ConsistencyKind::open ? "open" : "immutable";
}
std::string text_of(S3Addressing addressing) {
  return addressing == S3Addressing::path           ? "path"
         : addressing == S3Addressing::virtual_host ? "virtual"
                                                    : "auto";
}
std::string text_of(StatsFormat format) {
  return format == StatsFormat::json ? "json" : format == StatsFormat::classic ? "classic" : "text";
}
std::string text_of(LogLevel level) {
  constexpr const char* k_names[] = {"error", "warn", "info", "debug"};
  return k_names[static_cast<int>(level)];
}

Variables texts_of(const Config& config) {
  Variables texts;
#define CUBE_CONFIG(type, field, variable, default_text, takes, help) \
  texts[variable] = text_of(config.field);
#include "cache/base/settings/config.def"
#undef CUBE_CONFIG
  return texts;
}

void check_line(const std::string& line) {
  FUZZ_CHECK(line.size() < 1000, "%zu bytes", line.size());
  FUZZ_CHECK(std::none_of(line.begin(), line.end(),
                          [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7f; }),
             "a control character");
}

void check_prefixes(const Config& config) {
  for (const auto& prefix : config.prefixes) {
    std::string again;
    FUZZ_CHECK(normalize_prefix(prefix, again) && again == prefix && prefix != "/", "%s",
               prefix.c_str());
    for (const auto& other : config.prefixes) {
      FUZZ_CHECK(&other == &prefix || !(prefix + "/").starts_with(other + "/"), "%s in %s",
                 prefix.c_str(), other.c_str());
    }
  }
}

// No text can place the region's file or the report outside the given directory.
void check_names(const Config& config) {
  FUZZ_CHECK(!config.name.empty() && config.name.size() <= 64 &&
                 config.name.find('/') == std::string::npos,
             "name");
  FUZZ_CHECK(
      config.ram_dir.starts_with('/') && (config.ram_dir + "/").find("/../") == std::string::npos,
      "ram_dir");
  FUZZ_CHECK(!config.stats.empty(), "stats");
}

void check_process_id(const std::string& text) {
  ProcessId id, again;
  if (!parse_process_id(text, id)) return;
  FUZZ_CHECK(id.pid != 0 && id.pid <= 0x7fffffff, "pid %u is no process", id.pid);
  char out[80];
  const std::size_t n = format_process_id(id, out, sizeof out);
  FUZZ_CHECK(n == std::strlen(out) && parse_process_id({out, n}, again) && again == id, "%s", out);
}

void run(std::string_view text) {
  static const auto* const defaults = new Variables(texts_of(parse({}).config));
  Variables variables;
  std::vector<std::string> entries;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\0', at), text.size());
    entries.emplace_back(text.substr(at, end - at));
    at = end + 1;
    const std::string& entry = entries.back();
    const std::size_t equals = std::min(entry.find('='), entry.size());
    variables.emplace(entry.substr(0, equals), entry.substr(std::min(equals + 1, entry.size())));
  }
  const ParsedConfig parsed = parse(variables);
  const Variables texts = texts_of(parsed.config);
  for (const auto& line : parsed.errors) check_line(line);
  std::size_t wrong = 0;
  for (const auto& row : config_rows()) {
    const auto given = variables.find(row.variable);
    const bool is_wrong =
        std::any_of(parsed.errors.begin(), parsed.errors.end(), [&](const std::string& line) {
          return line.starts_with(std::string(row.variable) + "=\"");
        });
    // The prefix of a pack is served as if CUBESHIM_PREFIXES had named it.
    const bool has_packs = row.variable == "CUBESHIM_PREFIXES" && !parsed.config.origins.empty();
    // A job of a launcher has a name even without our variable.
    const bool has_launcher = row.variable == "CUBESHIM_CLUSTER_JOB" && !is_wrong;
    const bool is_default =
        has_packs || has_launcher ||
        texts.at(std::string(row.variable)) == defaults->at(std::string(row.variable));
    wrong += is_wrong ? 1 : 0;
    FUZZ_CHECK(!is_wrong || (is_default && given != variables.end()), "%s", row.variable.data());
    FUZZ_CHECK(is_default || given != variables.end(), "%s", row.variable.data());
  }
  FUZZ_CHECK(wrong == parsed.errors.size(), "%zu lines for %zu wrong values", parsed.errors.size(),
             wrong);
  check_prefixes(parsed.config);
  check_names(parsed.config);
  const ParsedConfig again = parse(texts);
  FUZZ_CHECK(again.errors.empty(), "%s", again.errors.front().c_str());
  FUZZ_CHECK(texts_of(again.config) == texts, "what was read is not what was written");

  std::vector<const char*> environment;
  for (const auto& entry : entries) environment.push_back(entry.c_str());
  environment.push_back(nullptr);
  for (const auto& line : unknown_variables(environment.data())) check_line(line);
  for (const auto& entry : entries)
    check_process_id(entry.substr(std::min(entry.find('=') + 1, entry.size())));
}

}  // namespace
}  // namespace cube::base

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  cube::base::run({reinterpret_cast<const char*>(data), size});
  return 0;
}
