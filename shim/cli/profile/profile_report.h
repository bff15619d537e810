// The findings of `cubeshim profile`: a table, folded stacks, and JSON for pages and programs.
// Thread safety: pure functions.
//
// profile.json is one object. Times are in ns; times named `at` are of CLOCK_MONOTONIC:
//   version 1, observed, processes, cut_off (sections without an end), bad_lines, wall,
//   total     {calls, bytes, time, origin_calls, origin_time}
//   dropped   {sites, files, texts, codes, native}
//   cost      {time (of the profiler, in all threads), text, stacks, stack_time, call_time,
//             start_time}
//   sites     [{kind, name, frames [{function, file, line}] outermost first (line 0: native),
//             example, calls, bytes, time, origin_calls, origin_time, errors, tiny, again,
//             latency [..]}], most time at the origin first
//   latency   {kind: [counts of calls of [2^i, 2^(i+1)) ns, i = 0 to 39]}
//   in_flight {bin (width), bins [{at, busy, calls}]}: busy / bin calls of the origin were in
//   flight
//             in that bin
//   patterns  [{name, site, seen, advice, example, count, cost, minor (below 1 % of `wall`)}], most
//             expensive first
#pragma once

#include <string>
#include <vector>

#include "shim/cli/profile/profile_patterns.h"
#include "shim/cli/profile/profile_sites.h"

namespace cube::cli {

std::string profile_as_table(const Profile& profile, const std::vector<Pattern>& patterns);
// Returns lines such as "main;load;read 1234" (in microseconds) for flamegraph.pl and speedscope.
std::string profile_as_folded(const Profile& profile);
std::string profile_as_json(const Profile& profile, const std::vector<Pattern>& patterns);

}  // namespace cube::cli
