// The memcached of `cubeshim pool`: which one runs, where it listens, and what it reports. Thread
// safety: one thread.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/base/process/process_id.h"
#include "cache/base/settings/config.h"

namespace cube::cli {

struct PoolWish {
  std::string memory, nvme, nvme_size, listen;  // values as the user gave them; empty: not given
  unsigned port = 11211;
};

// The state that `start` saves for `status` and `stop`, in a file of this user below
// CUBESHIM_RAM_DIR.
struct PoolState {
  base::ProcessId process;
  std::string address, storage;  // "127.0.0.1:11211"; the file on NVMe, if any
  unsigned port = 0;

  static std::string path_of(const base::Config& config);
  // Returns nothing if no pool of this name was started, or if its process has ended (it then
  // removes the file).
  static std::optional<PoolState> read(const base::Config& config);
  bool write(const base::Config& config) const;
};

// "[::1]:11211" for an IPv6 address.
std::string with_port(std::string_view address, unsigned port);
// Returns the lines of memcached's answer to `question` as names and values; empty if there is no
// answer within `timeout_ms`.
std::optional<std::map<std::string, std::string>> ask_memcached(const std::string& address,
                                                                unsigned port,
                                                                std::string_view question,
                                                                int timeout_ms);
// True if this version ("1.6.18" or "1.6.18_1") speaks the protocol of the cluster tier.
bool is_new_memcached(std::string_view version);
int start_pool(const base::Config& config, const PoolWish& wish);

}  // namespace cube::cli
