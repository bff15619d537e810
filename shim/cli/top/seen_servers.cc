#include "shim/cli/top/seen_servers.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cache/base/clock.h"

namespace cube::cli {
namespace {

// The leader updates its rows ten times a second, and asks each server every two seconds.
constexpr std::uint64_t k_old_row_ns = 5 * base::k_ns_per_s, k_silent_ns = 6 * base::k_ns_per_s;

std::string state_of(const base::ServerRow& row, std::uint64_t now) {
  const auto seconds = [](std::uint64_t ns) {
    return (ns + base::k_ns_per_s - 1) / base::k_ns_per_s;
  };
  const std::uint64_t told = row.told_ns, answered = row.answered_ns,
                      rests_until = row.rests_until_ns;
  if (told + k_old_row_ns < now) return "not known";
  if (row.has_address == 0) return "left out";
  if (rests_until > now) return fmt::format("rests for {} s", seconds(rests_until - now));
  if (answered == 0) return "no answer yet";
  if (answered + k_silent_ns < now)
    return fmt::format("silent for {} s", (now - answered) / base::k_ns_per_s);
  return row.is_full != 0 ? "full" : "answers";
}

}  // namespace

std::vector<SeenServer> servers_of(const cache::Region& region) {
  std::vector<SeenServer> servers;
  const std::uint64_t now = base::monotonic_ns();
  for (std::uint32_t i = 0; i < base::k_server_rows; ++i) {
    const base::ServerRow& row = region.server_row(i);
    if (row.told_ns == 0) continue;
    servers.push_back({row.name_text(), state_of(row, now), row.used, row.capacity, row.entries});
  }
  return servers;
}

nlohmann::ordered_json json_of(const std::vector<SeenServer>& servers) {
  auto list = nlohmann::ordered_json::array();
  for (const SeenServer& server : servers)
    list.push_back({{"server", server.name},
                    {"state", server.state},
                    {"used", server.used},
                    {"capacity", server.capacity},
                    {"entries", server.entries}});
  return list;
}

}  // namespace cube::cli
