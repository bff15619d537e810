// ClusterClient::Worker: looks up the addresses of the servers, and writes the rows that describe
// the servers in reports.
#include "cache/base/log.h"
#include "cache/tier/cluster/cluster_worker.h"

namespace cube::cache {
namespace {

constexpr std::uint64_t k_first_pause_of_names_ns = 1'000'000'000, k_between_rows_ns = 100'000'000;

}  // namespace

// Requests do not wait for a lookup: until it ends, a server without an address is left out.
void ClusterClient::Worker::look_up_names(std::uint64_t now) {
  for (std::size_t i = 0; i < servers_.size(); ++i) {
    Server& server = *servers_[i];
    if (!server.is_asked_for && now >= server.next_look_ns) {
      server.is_asked_for = true;
      server.query.begin(client_.options_.servers[i], now);
    } else if (server.is_asked_for) {
      server.query.pump(now);
    }
    if (server.is_asked_for && !server.query.is_under_way()) end_look(i, now);
  }
}

void ClusterClient::Worker::end_look(std::size_t index, std::uint64_t now) {
  Server& server = *servers_[index];
  const std::string& name = client_.options_.servers[index];
  server.is_asked_for = false;
  if (server.query.has_address()) {
    if (server.is_told && !server.has_address)
      base::log(base::LogLevel::warn, "CUBESHIM_CLUSTER: {} has an address now", name);
    const ServerAddress former = std::exchange(server.address, server.query.address());
    // Closes the connection to the old address, because other nodes no longer use it.
    if (server.has_address && former != server.address && server.fill.connection.is_open())
      lane_broke(server.fill, now);
    server.has_address = true;
    server.failures = 0;
    server.next_look_ns = UINT64_MAX;
    state(index).is_left_out.store(false, std::memory_order_relaxed);
    if (state(index).breaker.allows_requests(now)) prepare(server.demand, now);
    return;
  }
  constexpr unsigned k_most_name_pauses = 5;
  server.next_look_ns =
      now + (k_first_pause_of_names_ns << std::min(server.failures++, k_most_name_pauses));
  state(index).is_left_out.store(!server.has_address, std::memory_order_relaxed);
  // A lookup has failed. The old address, if there is one, remains in use.
  if (server.has_address || std::exchange(server.is_told, true)) return;
  base::log(base::LogLevel::warn,
            "CUBESHIM_CLUSTER: {} is left out as long as its name has no address: {}", name,
            server.query.why());
}

// Writes the figures of the servers for `cubeshim top`. Only the leader does so.
void ClusterClient::Worker::tell_rows(std::uint64_t now) {
  if (!source_.is_leader() || now < next_tell_ns_) return;
  next_tell_ns_ = now + k_between_rows_ns;
  constexpr auto k_relaxed = std::memory_order_relaxed;
  for (std::size_t i = 0; i < base::k_server_rows; ++i) {
    base::ServerRow& row = client_.options_.rows[i];
    if (i >= servers_.size()) {
      row.told_ns.store(0, k_relaxed);
      continue;
    }
    const ServerState& of = state(i);
    row.set_name(client_.options_.servers[i]);
    row.capacity.store(of.capacity.load(k_relaxed), k_relaxed);
    row.used.store(of.used.load(k_relaxed), k_relaxed);
    row.entries.store(of.entries.load(k_relaxed), k_relaxed);
    row.answered_ns.store(of.answered_ns, k_relaxed);
    row.rests_until_ns.store(of.breaker.rest_until_ns(), k_relaxed);
    row.no_offers_until_ns.store(of.no_offers_until_ns.load(k_relaxed), k_relaxed);
    row.has_address.store(servers_[i]->has_address ? 1 : 0, k_relaxed);
    row.is_full.store(of.is_full ? 1 : 0, k_relaxed);
    row.told_ns.store(now, k_relaxed);
  }
}

}  // namespace cube::cache
