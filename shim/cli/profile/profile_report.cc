#include "shim/cli/profile/profile_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "shim/cli/printable.h"
#include "shim/cli/settings.h"

namespace cube::cli {
namespace {

std::string in_time(std::uint64_t ns) {
  const auto us = static_cast<double>(ns) / 1000;
  return us < 1000  ? fmt::format("{:.0f} us", us)
         : us < 1e6 ? fmt::format("{:.1f} ms", us / 1000)
                    : fmt::format("{:.1f} s", us / 1e6);
}

// Returns a text about the profiler's own cost as a share of the wall time.
std::string text_of_cost(const Profile& profile) {
  const ProfileCost& cost = profile.cost;
  const std::uint64_t wall = std::max<std::uint64_t>(profile.end_ns - profile.start_ns, 1);
  return fmt::format(
      "the profiler took {}, {:.1f} % of it: {} in calls, {} for {} native stacks, {} at the start "
      "and the end",
      in_time(cost.total_ns()),
      100.0 * static_cast<double>(cost.total_ns()) / static_cast<double>(wall),
      in_time(cost.call_ns), in_time(cost.stack_ns), cost.stacks, in_time(cost.start_and_end_ns));
}

// The calls of one function, of all kinds.
struct Row {
  std::map<std::size_t, std::uint64_t> calls_by_kind;
  std::uint64_t calls = 0, bytes = 0, ns = 0, origin_ns = 0;
};

std::string kinds_of(const Row& row) {
  std::string text;
  for (const auto& [kind, calls] : row.calls_by_kind)
    text +=
        fmt::format("{}{} {}", text.empty() ? "" : ", ", calls, shim::profile::k_kind_names[kind]);
  return text;
}

std::string folded_name(std::string text) {
  std::replace(text.begin(), text.end(), ';', ':');
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

nlohmann::json json_of(const ProfileSite& site) {
  auto frames = nlohmann::json::array();
  for (const auto& frame : site.frames)
    frames.push_back({{"function", frame.function}, {"file", frame.file}, {"line", frame.line}});
  const auto& c = site.counts;
  return {{"kind", shim::profile::k_kind_names[site.kind]},
          {"name", text_of_site(site)},
          {"frames", frames},
          {"example", site.example},
          {"calls", c[shim::profile::k_calls]},
          {"bytes", c[shim::profile::k_bytes]},
          {"time", c[shim::profile::k_ns]},
          {"origin_calls", c[shim::profile::k_origin_calls]},
          {"origin_time", c[shim::profile::k_origin_ns]},
          {"errors", c[shim::profile::k_errors]},
          {"tiny", c[shim::profile::k_tiny]},
          {"again", c[shim::profile::k_again]},
          {"latency", site.latency}};
}

// Returns the calls of each function, the function with the most time at the origin first.
std::vector<std::pair<std::string, Row>> rows_of(const Profile& profile) {
  std::vector<std::pair<std::string, Row>> rows;
  std::map<std::string, std::size_t> numbers;
  for (const auto& site : profile.sites) {
    const std::string native = native_leaf(site), name = text_of_site(site);
    const std::string key = native.empty() ? name : fmt::format("{}, by {}", name, native);
    const auto [known, is_new] = numbers.emplace(key, rows.size());
    if (is_new) rows.emplace_back(key, Row{});
    Row& row = rows[known->second].second;
    row.calls_by_kind[site.kind] += site.counts[shim::profile::k_calls];
    row.calls += site.counts[shim::profile::k_calls];
    row.bytes += site.counts[shim::profile::k_bytes];
    row.ns += site.counts[shim::profile::k_ns];
    row.origin_ns += site.counts[shim::profile::k_origin_ns];
  }
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second.origin_ns, a.second.ns) > std::pair(b.second.origin_ns, b.second.ns);
  });
  return rows;
}

std::string text_of_rows(const std::vector<std::pair<std::string, Row>>& rows) {
  constexpr std::size_t k_shown_rows = 20;
  std::string text = fmt::format("\n{:>9} {:>10} {:>10} {:>10}  {}\n", "calls", "bytes", "time",
                                 "at origin", "call site");
  for (std::size_t i = 0; i < std::min(rows.size(), k_shown_rows); ++i) {
    const auto& [name, row] = rows[i];
    text +=
        fmt::format("{:>9} {:>10} {:>10} {:>10}  {}\n{:44}{}\n", row.calls, in_units(row.bytes),
                    in_time(row.ns), in_time(row.origin_ns), printable(name), "", kinds_of(row));
  }
  if (rows.size() > k_shown_rows)
    text += fmt::format("{:44}{} more in profile.json\n", "", rows.size() - k_shown_rows);
  return text;
}

std::string text_of_patterns(const std::vector<Pattern>& patterns) {
  std::string text = patterns.empty() ? "\nno pattern that costs time\n" : "\npatterns\n";
  std::string minor;
  for (const auto& pattern : patterns) {
    if (pattern.is_minor) {
      minor += fmt::format("    {}: in {}\n", pattern.name, printable(pattern.site));
      continue;
    }
    text += fmt::format("  {}: {}, cost {}\n    in {}\n    {}\n", pattern.name, pattern.seen,
                        in_time(pattern.cost_ns), printable(pattern.site), pattern.advice);
    if (!pattern.example.empty())
      text += fmt::format("    such as {}\n", printable(pattern.example));
  }
  if (!minor.empty()) text += "  less than 1 % of the time\n" + minor;
  return text;
}

}  // namespace

std::string profile_as_table(const Profile& profile, const std::vector<Pattern>& patterns) {
  std::string text = fmt::format(
      "{} calls of {} process{}, {} read or mapped; {} in calls, {} of it at the origin; {} by the "
      "clock\n",
      profile.total(shim::profile::k_calls), profile.processes, profile.processes == 1 ? "" : "es",
      in_units(profile.total(shim::profile::k_bytes)), in_time(profile.total(shim::profile::k_ns)),
      in_time(profile.total(shim::profile::k_origin_ns)),
      in_time(profile.end_ns - profile.start_ns));
  text += text_of_cost(profile) + "\n";
  text += text_of_rows(rows_of(profile)) + text_of_patterns(patterns);
  const auto& d = profile.dropped;
  if (d[shim::profile::k_no_site] + d[shim::profile::k_no_file] + d[shim::profile::k_no_text] +
          d[shim::profile::k_no_code] !=
      0)
    text += fmt::format(
        "\nleft out, because the tables were full: {} calls, {} uses of files, {} texts, {} "
        "functions\n",
        d[shim::profile::k_no_site], d[shim::profile::k_no_file], d[shim::profile::k_no_text],
        d[shim::profile::k_no_code]);
  if (profile.cut_off + profile.bad_lines != 0)
    text += fmt::format("\ndamaged: {} sections are cut off, {} lines are not understood\n",
                        profile.cut_off, profile.bad_lines);
  return text;
}

std::string profile_as_folded(const Profile& profile) {
  std::map<std::string, std::uint64_t> stacks;
  for (const auto& site : profile.sites) {
    std::string stack;
    for (const auto& frame : site.frames) stack += folded_name(text_of_frame(frame)) + ";";
    stacks[stack + std::string(shim::profile::k_kind_names[site.kind])] +=
        site.counts[shim::profile::k_ns] / 1000;
  }
  std::string text;
  for (const auto& [stack, us] : stacks) {
    if (us != 0) text += fmt::format("{} {}\n", stack, us);
  }
  return text;
}

std::string profile_as_json(const Profile& profile, const std::vector<Pattern>& patterns) {
  nlohmann::json out;
  out["version"] = 1;
  out["observed"] = profile.observes;
  out["processes"] = profile.processes;
  out["cut_off"] = profile.cut_off;
  out["bad_lines"] = profile.bad_lines;
  out["wall"] = profile.end_ns - profile.start_ns;
  out["total"] = {{"calls", profile.total(shim::profile::k_calls)},
                  {"bytes", profile.total(shim::profile::k_bytes)},
                  {"time", profile.total(shim::profile::k_ns)},
                  {"origin_calls", profile.total(shim::profile::k_origin_calls)},
                  {"origin_time", profile.total(shim::profile::k_origin_ns)}};
  const auto& d = profile.dropped;
  out["dropped"] = {{"sites", d[shim::profile::k_no_site]},
                    {"files", d[shim::profile::k_no_file]},
                    {"texts", d[shim::profile::k_no_text]},
                    {"codes", d[shim::profile::k_no_code]},
                    {"native", d[shim::profile::k_no_native]}};
  const ProfileCost& cost = profile.cost;
  out["cost"] = {{"time", cost.total_ns()},   {"text", text_of_cost(profile)},
                 {"stacks", cost.stacks},     {"stack_time", cost.stack_ns},
                 {"call_time", cost.call_ns}, {"start_time", cost.start_and_end_ns}};
  out["sites"] = nlohmann::json::array();
  std::map<std::size_t, std::array<std::uint64_t, shim::profile::k_latency_buckets>> latency;
  for (const auto& site : profile.sites) {
    out["sites"].push_back(json_of(site));
    auto& sum = latency[site.kind];
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += site.latency[i];
  }
  out["latency"] = nlohmann::json::object();
  for (const auto& [kind, counts] : latency)
    out["latency"][std::string(shim::profile::k_kind_names[kind])] = counts;
  auto bins = nlohmann::json::array();
  for (const auto& bin : profile.bins)
    bins.push_back({{"at", bin.at_ns}, {"busy", bin.busy_ns}, {"calls", bin.calls}});
  out["in_flight"] = {{"bin", profile.bin_width_ns}, {"bins", bins}};
  out["patterns"] = nlohmann::json::array();
  for (const auto& pattern : patterns)
    out["patterns"].push_back({{"name", pattern.name},
                               {"site", pattern.site},
                               {"seen", pattern.seen},
                               {"advice", pattern.advice},
                               {"example", pattern.example},
                               {"count", pattern.count},
                               {"cost", pattern.cost_ns},
                               {"minor", pattern.is_minor}});
  return out.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace cube::cli
