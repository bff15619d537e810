// cubeshim doctor: checks whether cubeshim will work on this machine, and how well.
#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "prefetch/object/s3/uri.h"
#include "shim/cli/color.h"
#include "shim/cli/commands.h"
#include "shim/cli/doctor/checks.h"
#include "shim/cli/settings.h"
#include "shim/cli/shell/wrap.h"

namespace cube::cli {
namespace {

struct Doctor {
  Settings settings;
  std::vector<std::string> program;  // the program and its arguments
  bool json = false;
};

const char* name_of(Health health) {
  return health == Health::well ? "ok" : health == Health::slow ? "warn" : "fail";
}

void check_machine(const Doctor& doctor, Findings& findings) {
  const auto parsed = doctor.settings.parse();
  check_settings(parsed, findings);
  check_prefixes(parsed.config, findings);
  check_memory(parsed.config, findings);
  check_region(parsed.config, findings);
  check_disk(parsed.config, findings);
  check_cluster(parsed.config, findings);
  check_prefetch(parsed.config, findings);
  check_large_files(parsed.config, findings);
  check_memory_group(parsed.config, findings);
  check_library(findings);
  if (!doctor.program.empty()) check_program(doctor.program.front(), findings);
  check_preloaded(findings);
  check_kernel(parsed.config, findings);
  check_limits(parsed.config, findings);
}

int doctor(const Doctor& doctor) {
  Findings findings;
  if (!doctor.program.empty() && s3::is_s3_uri(doctor.program.front())) {
    for (const auto& uri : doctor.program) check_bucket(uri, findings);
  } else {
    check_machine(doctor, findings);
  }
  if (doctor.json) {
    auto list = nlohmann::json::array();
    for (const auto& f : findings)
      list.push_back({{"health", name_of(f.health)}, {"what", f.what}, {"advice", f.advice}});
    fmt::print("{}\n", list.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    std::string text;
    for (const auto& f : findings) {
      const Color color = f.health == Health::well   ? Color::good
                          : f.health == Health::slow ? Color::fair
                                                     : Color::bad;
      text +=
          fmt::format("{}  {}\n", painted(fmt::format("{:<4}", name_of(f.health)), color), f.what);
      if (!f.advice.empty()) text += fmt::format("      -> {}\n", f.advice);
    }
    print_fitted(text);
  }
  return std::any_of(findings.begin(), findings.end(),
                     [](const auto& f) { return f.health == Health::broken; })
             ? 1
             : 0;
}

}  // namespace

void add_doctor(CLI::App& app, int& status) {
  CLI::App* const command =
      app.add_subcommand("doctor", "Find what keeps files from being served, and say what to do");
  const auto options = std::make_shared<Doctor>();
  options->settings.add_to(*command, Settings::Which::all);
  command->add_flag("--json", options->json, "A JSON list");
  add_color_option(*command);
  command->add_option(
      "PROGRAM", options->program,
      "Check that the library can be preloaded into this program; -- goes before its "
      "arguments. For s3://BUCKET/PREFIX, check that it can be read");
  command->callback([options, &status] { status = doctor(*options); });
}

}  // namespace cube::cli
