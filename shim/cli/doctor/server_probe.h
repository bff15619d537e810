// Asks a server of CUBESHIM_CLUSTER for the facts that `cubeshim doctor` reports. Thread safety:
// one thread per server.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cache/base/settings/config.h"

namespace cube::cli {

// A note that `cubeshim doctor` stores on a server for the other nodes.
struct NodeNote {
  std::string node;
  std::string servers;                       // CUBESHIM_CLUSTER, in alphabetical order
  std::map<std::string, std::string> roots;  // the prefixes by their ids
  std::int64_t time = 0;                     // seconds of the wall clock
};

struct ServerProbe {
  std::string name;          // as in CUBESHIM_CLUSTER
  std::string trouble;       // empty if the server answers
  bool was_refused = false;  // the login is wrong or missing
  bool has_meta = false, is_new_enough = false;
  std::string version;
  double round_trip_us = 0;                            // median
  std::map<std::string, std::string> stats, settings;  // memcached's names and values
  std::vector<NodeNote> notes;                         // the notes of all nodes and of this node
  std::string no_notes;                                // why there are no notes

  std::uint64_t number(const std::string& name) const;
};

// Waits at most `timeout_ms` for the server. Stores `own` on the server for a day, for other nodes.
ServerProbe probe_server(const std::string& name, const std::string& login, const std::string& key,
                         const NodeNote& own, int timeout_ms);

}  // namespace cube::cli
