// cubeshim doctor: checks the servers of CUBESHIM_CLUSTER.
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <thread>

#include "cache/tier/shared/cluster_identity.h"
#include "shim/cli/doctor/checks.h"
#include "shim/cli/doctor/server_probe.h"
#include "shim/cli/settings.h"

namespace cube::cli {
namespace {

constexpr int k_timeout_ms = 1500;
constexpr std::uint64_t k_item_unit = 1 << 20, k_chunk_max = 16384, k_chunk_limit = 64 << 10,
                        k_few_connections = 64;

NodeNote note_of(const base::Config& config) {
  NodeNote note;
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  note.node = host;
  auto servers = config.cluster.texts;
  std::ranges::sort(servers);
  note.servers = fmt::format("{}", fmt::join(servers, ","));
  for (const auto& named : config.cluster_origin) note.roots[named.file] = named.prefix;
  for (const auto& prefix : config.prefixes) {
    const bool is_named = std::ranges::any_of(
        config.cluster_origin, [&](const auto& named) { return named.prefix == prefix; });
    if (!is_named) note.roots[prefix] = prefix;
  }
  note.time = std::time(nullptr);
  return note;
}

// Asks all servers at the same time, so that a server that hangs does not delay the others.
std::vector<ServerProbe> look_at_all(const base::Config& config, const std::string& login,
                                     const NodeNote& own) {
  const auto& names = config.cluster.texts;
  const std::string key = fmt::format("cs2:{}:doctor", config.cluster_name);
  std::vector<ServerProbe> looks(names.size());
  std::vector<std::jthread> threads;
  threads.reserve(names.size());
  for (std::size_t i = 0; i < names.size(); ++i)
    threads.emplace_back(
        [&, i] { looks[i] = probe_server(names[i], login, key, own, k_timeout_ms); });
  threads.clear();
  return looks;
}

// Returns false if no further check of this server is possible.
bool check_answers(const ServerProbe& look, bool has_login, Findings& findings) {
  if (look.was_refused) {
    say(findings, Health::broken,
        has_login ? "correct USER:PASSWORD in the file of CUBESHIM_CLUSTER_LOGIN_FILE"
                  : "set CUBESHIM_CLUSTER_LOGIN_FILE to a file with USER:PASSWORD, as in the "
                    "server's -Y file",
        "server {} wants {} login: {}", look.name, has_login ? "another" : "a", look.trouble);
  } else if (!look.trouble.empty()) {
    say(findings, Health::broken,
        "start it, or correct CUBESHIM_CLUSTER; files of this server are read at the origin",
        "server {}: {}", look.name, look.trouble);
  } else if (!look.has_meta) {
    say(findings, Health::broken, "memcached 1.6.18 or later is needed",
        "server {}: memcached {} has no meta protocol", look.name, look.version);
  } else {
    return true;
  }
  return false;
}

void check_flags(const ServerProbe& look, const base::Config& config, Findings& findings) {
  if (!look.is_new_enough)
    say(findings, Health::broken, "memcached 1.6.18 or later is needed",
        "server {}: memcached {} is too old", look.name, look.version);
  const auto evictions = look.settings.find("evictions");
  if (evictions != look.settings.end() && evictions->second != "off")
    say(findings, Health::slow, "start it with -M",
        "server {} drops old records when it is full, and random epochs then miss", look.name);
  const std::uint64_t largest = look.number("item_size_max"),
                      wanted = cache::largest_cluster_value(config);
  if (largest != 0 && largest < wanted)
    say(findings, Health::slow,
        fmt::format("start it with -I {}m", (wanted + k_item_unit - 1) / k_item_unit),
        "server {} takes items up to {}; larger files are not shared, and CUBESHIM_MAX_FILE is {}",
        look.name, in_units(largest), in_units(config.max_file));
  const std::uint64_t chunk = look.number("slab_chunk_max");
  if (chunk > k_chunk_limit)
    say(findings, Health::slow, fmt::format("start it with -o slab_chunk_max={}", k_chunk_max),
        "server {} has slab_chunk_max {}: once full of small files, it has no room for larger ones",
        look.name, chunk);
}

void check_room(const ServerProbe& look, const base::Config& config, Findings& findings) {
  const std::uint64_t most = look.number("max_connections"), now = look.number("curr_connections");
  const std::uint64_t left = most - std::min(now, most);
  if (most != 0 && left < k_few_connections)
    say(findings, Health::slow,
        "start it with -c 8192: each process that reads takes one, and one more when it shares",
        "server {} has {} of {} connections left", look.name, left, most);
  const std::uint64_t limit = look.number("limit_maxbytes"), used = look.number("bytes");
  if (limit != 0 && used >= limit / 10 * 9)
    say(findings, Health::slow, "start it with a larger -m, or add a server",
        "server {} is full: {} of {} used", look.name, in_units(used), in_units(limit));
  const double deadline_us = static_cast<double>(config.cluster_deadline.ms) * 1000;
  if (look.round_trip_us > deadline_us / 2)
    say(findings, Health::slow, "check the network, or raise CUBESHIM_CLUSTER_DEADLINE",
        "server {}: a round trip takes {:.1f} ms, and an open waits for {} ms at most", look.name,
        look.round_trip_us / 1000, config.cluster_deadline.ms);
}

void check_server(const ServerProbe& look, const base::Config& config, Findings& findings) {
  if (!check_answers(look, !config.cluster_login.empty(), findings)) return;
  const std::uint64_t most = look.number("max_connections");
  say(findings, Health::well, "",
      "server {}: memcached {}, round trip {:.0f} us, {} of {} used, {} of {} connections left",
      look.name, look.version, look.round_trip_us, in_units(look.number("bytes")),
      in_units(look.number("limit_maxbytes")),
      most - std::min(look.number("curr_connections"), most), most);
  check_flags(look, config, findings);
  check_room(look, config, findings);
}

std::string text_of(const std::map<std::string, std::string>& roots) {
  std::vector<std::string> all;
  all.reserve(roots.size());
  for (const auto& [id, prefix] : roots)
    all.push_back(id == prefix ? id : fmt::format("{} as {}", prefix, id));
  return fmt::format("{}", fmt::join(all, ", "));
}

// Compares the ids of the nodes. A node with other ids never finds the files that this node has
// shared, and no other check would report that.
void check_nodes(const std::vector<ServerProbe>& looks, const NodeNote& own, Findings& findings) {
  std::map<std::string, NodeNote> nodes;
  std::string no_notes;
  bool is_any = false;
  for (const ServerProbe& look : looks) {
    if (!look.no_notes.empty() && no_notes.empty())
      no_notes = fmt::format("{}: {}", look.name, look.no_notes);
    is_any = is_any || !look.notes.empty();
    for (const NodeNote& note : look.notes) {
      NodeNote& known = nodes[note.node];
      if (note.time >= known.time) known = note;
    }
  }
  if (!is_any) {
    if (!no_notes.empty())
      say(findings, Health::slow, "",
          "it is not known whether other nodes have the same ids: server {}", no_notes);
    return;
  }
  nodes.erase(own.node);
  std::vector<std::string> alike;
  for (const auto& [name, note] : nodes) {
    const bool is_alike = std::ranges::any_of(
        note.roots, [&](const auto& root) { return own.roots.contains(root.first); });
    if (note.servers != own.servers) {
      say(findings, Health::slow, "give all nodes the same CUBESHIM_CLUSTER",
          "node {} has other servers: {}", name, note.servers);
    } else if (!is_alike) {
      say(findings, Health::slow,
          "if it is the same data, give it the same ID: CUBESHIM_CLUSTER_ORIGIN=PREFIX=ID on each "
          "node",
          "node {} shares {}, and this node {}: neither finds what the other has shared", name,
          text_of(note.roots), text_of(own.roots));
    } else {
      alike.push_back(name);
    }
  }
  if (!alike.empty()) {
    say(findings, Health::well, "", "this node shares {}; so do others: {}", text_of(own.roots),
        fmt::join(alike, ", "));
  } else if (nodes.empty()) {
    say(findings, Health::well, "",
        "this node shares {}; cubeshim doctor has not run on others today, and compares these ids",
        text_of(own.roots));
  }
}

}  // namespace

void check_cluster(const base::Config& config, Findings& findings) {
  if (config.cluster.texts.empty()) return;
  std::string login, why;
  if (!cache::read_cluster_login(config.cluster_login, login, why))
    return say(findings, Health::broken, "correct it; without it nothing is shared", "{}", why);
  const NodeNote own = note_of(config);
  const auto looks = look_at_all(config, login, own);
  for (const ServerProbe& look : looks) check_server(look, config, findings);
  if (!own.roots.empty()) check_nodes(looks, own, findings);
}

}  // namespace cube::cli
