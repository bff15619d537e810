// The settings, read once from the environment. A wrong value is replaced by the default, and a
// line of text names the variable, the value, and the values that the variable accepts. config.def
// defines the settings. Thread safety: a Config is immutable after parse_config.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/base/log.h"

namespace cube::base {

enum class Mode { virtual_files, real_files, off };

// The size of the region: a share of the free memory, or a number of bytes.
struct RamSize {
  bool is_percent = true;
  std::uint64_t value = 25;
  bool operator==(const RamSize&) const = default;
};

enum class ConsistencyKind { immutable, ttl, open };
struct Consistency {
  ConsistencyKind kind = ConsistencyKind::immutable;
  std::uint64_t ttl_seconds = 0;
};

// How long metadata is served without revalidation: for a time that depends on its age, for the
// whole job, or for a number of seconds.
struct MetadataTtl {
  enum class Kind { automatic, job, seconds };
  Kind kind = Kind::automatic;
  std::uint64_t seconds = 0;
};

enum class StatsFormat { text, classic, json };
enum class EngineKind { automatic, uring, threads };
enum class S3Addressing { automatic, path, virtual_host };

// An origin, and the prefix at which programs see it. `file` is the path of a pack, the URL of a
// bucket, or an id (see config_types).
struct OriginSetting {
  std::string prefix, file;
};

// Each server as the user wrote it: HOST:PORT, or the path of a Unix socket. A missing port is
// added.
struct ServerList {
  std::vector<std::string> texts;
};
struct Duration {
  std::uint64_t ms = 0;
};

namespace config_types {
using Prefixes = std::vector<std::string>;   // absolute, normalized, none within another
using Origins = std::vector<OriginSetting>;  // prefixes as above, longest first, each once
using Buckets = std::vector<OriginSetting>;  // as Origins; `file` is the URL, without a last slash
using Servers = ServerList;
using OriginIds = std::vector<OriginSetting>;  // as Origins; `file` is the ID
using Milliseconds = Duration;
using Mode = base::Mode;
using Name = std::string;
using RamSize = base::RamSize;
using RingSize = base::RamSize;
using DiskSize = base::RamSize;
using Directory = std::string;
using Switch = bool;
using Bytes = std::uint64_t;
using BlockSize = std::uint64_t;
using Consistency = base::Consistency;
using Text = std::string;
using StatsFormat = base::StatsFormat;
using Seconds = std::uint64_t;
using Interval = std::uint64_t;  // seconds; 0: never
using MetadataTtl = base::MetadataTtl;
using Depth = unsigned;
using IoEngine = EngineKind;
using S3Addressing = base::S3Addressing;
using Log = LogLevel;
}  // namespace config_types

struct Config {  // NOLINT(clang-analyzer-optin.performance.Padding): in the order of the document
#define CUBE_CONFIG(type, field, variable, default_text, takes, help) config_types::type field{};
#include "cache/base/settings/config.def"
#undef CUBE_CONFIG
};

struct ConfigRow {
  std::string_view variable, default_text, takes, help;
};
const std::vector<ConfigRow>& config_rows();
// Makes the value of a variable fit for one line: replaces control characters, and cuts a long
// value.
std::string for_a_line(std::string_view value);

struct ParsedConfig {
  Config config;
  std::vector<std::string> errors;  // one line each
};

using Lookup = std::function<const char*(const char* variable)>;
// How the caller reacts to a wrong value: by using the default, or by exiting. If the caller uses
// the default, the line about the value names the default.
enum class IfWrong { use_default, end };
ParsedConfig parse_config(const Lookup& lookup, IfWrong if_wrong = IfWrong::use_default);

// Whether the prefix belongs to a pack or a bucket. The directory of such a prefix need not exist
// in the kernel's file tree.
bool is_without_mount(const Config& config, std::string_view prefix);

// Returns a line for each variable that starts with CUBESHIM_ but is not a setting. `environment`
// is a null-terminated list.
std::vector<std::string> unknown_variables(const char* const* environment);

// "512K", "8G", "1048576" -> bytes. False: the text does not parse or overflows.
bool parse_bytes(std::string_view text, std::uint64_t& bytes);

// Collapses "//" and "/./" in an absolute path, and drops a trailing slash. False: the path is
// relative or contains "..".
bool normalize_prefix(std::string_view text, std::string& prefix);

}  // namespace cube::base
