// The memcached of `cubeshim pool`: its process, its address and its statistics. Thread safety: one
// thread.
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
  std::string memory, nvme, nvme_size, listen;  // as the user gave them; empty if not given
  unsigned port = 11211;
};

// The state that `start` saves for `status` and `stop`, in a file below CUBESHIM_RAM_DIR that
// belongs to this user.
struct PoolState {
  base::ProcessId process;
  std::string address, storage;  // "127.0.0.1:11211"; the file on NVMe, if any
  unsigned port = 0;

  static std::string path_of(const base::Config& config);
  // Returns nothing if no pool of this name was started. If the process of the pool has ended,
  // removes the file and returns nothing.
  static std::optional<PoolState> read(const base::Config& config);
  bool write(const base::Config& config) const;
};

// Returns "ADDRESS:PORT", with brackets around an IPv6 address ("[::1]:11211").
std::string with_port(std::string_view address, unsigned port);
// Returns the lines of memcached's answer to `question` as names and values. Returns nothing if
// there is no answer within `timeout_ms`.
std::optional<std::map<std::string, std::string>> ask_memcached(const std::string& address,
                                                                unsigned port,
                                                                std::string_view question,
                                                                int timeout_ms);
// True if memcached of this version ("1.6.18" or "1.6.18_1") supports the protocol of the cluster
// tier.
bool is_new_memcached(std::string_view version);
int start_pool(const base::Config& config, const PoolWish& wish);

}  // namespace cube::cli
