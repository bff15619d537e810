// The forecasts of `cubeshim plan`, as text for a terminal of 80 columns and as JSON. Thread
// safety: pure functions.
//
// The JSON is one object. A time that was not measured is null:
//   version 1
//   observed  {files, bytes, epochs, processes, readers, with_cache, seconds, profiler_seconds,
//             origin_us, memory_us, tier_us, packed_us (of an open and the other calls on its
//             file)}
//   plans     [{ram, disk (bytes), nodes, pack, first, later}]; first, later: {hit_ratio, seconds,
//             at_least (the time of hits is missing)}
//   curve     [{ram, hit_ratio, seconds}], of later epochs with one node, no disk and no pack
//   settings  {CUBESHIM_RAM, and if there is too little memory CUBESHIM_DISK}
#pragma once

#include <map>
#include <string>
#include <vector>

#include "shim/cli/plan/forecast.h"

namespace cube::cli {

struct Planned {
  Wish wish;
  Forecast forecast;
};
struct Plans {
  std::vector<Planned> table, curve;
  std::map<std::string, std::string> settings;  // by their variables
};

std::string plans_as_text(const Observed& observed, const Plans& plans);
std::string plans_as_json(const Observed& observed, const Plans& plans);

}  // namespace cube::cli
