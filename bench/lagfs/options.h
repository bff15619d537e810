// The command line of lagfs.
//
// Thread safety: plain data, filled before any thread starts.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "faults.h"
#include "latency.h"

namespace cube::lagfs {

struct Options {
  std::string source;
  std::string mountpoint;  // absolute
  Latency::PerCost latency_us{};
  double bandwidth_mb = 0;  // 10^6 bytes per second; 0: no cap
  bool direct = false;
  bool keep_cache = false;
  bool readdirplus = false;
  bool foreground = false;
  bool own_locks = false;
  double attr_timeout = 1;
  double entry_timeout = 1;
  double negative_timeout = 0;
  std::uint32_t max_read = 0;  // 0: the kernel's default
  unsigned threads = 128;
  std::uint64_t seed = 1;
  std::vector<FailRule> fails;
  std::vector<HangRule> hangs;
  double short_read = 0;
  std::vector<std::string> mount_options;
};

// One line that names the wrong value and the accepted values.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The text that --help asks for.
struct Help {
  std::string text;
};

// Throws UsageError.
std::variant<Options, Help> parse_options(int argc, char** argv);

}  // namespace cube::lagfs
