// cubeshim plan: predicts the epochs of an observed run for other sizes of memory and disk, more
// nodes, and a pack.
#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "cache/base/error_text.h"
#include "cache/base/memory/memory_limits.h"
#include "shim/cli/commands.h"
#include "shim/cli/complaint.h"
#include "shim/cli/plan/plan_report.h"
#include "shim/cli/profile/raw_files.h"
#include "shim/cli/settings.h"
#include "shim/cli/wrong_use.h"

namespace cube::cli {
namespace {

constexpr std::uint64_t k_least_ram = 8 << 20, k_least_disk = 4 << 20;

struct PlanCommand {
  std::string path = k_profile_directory;
  std::vector<std::string> rams, disks;
  std::vector<unsigned> nodes{1};
  unsigned epochs = 0;
  bool is_json = false;
};

// Parses sizes. Returns an error, or an empty string on success.
std::string read_sizes(const char* option, const std::vector<std::string>& texts,
                       std::uint64_t least, std::vector<std::uint64_t>& sizes) {
  for (const auto& text : texts) {
    std::uint64_t bytes = 0;
    if (!base::parse_bytes(text, bytes) || bytes < least)
      return fmt::format("{} \"{}\" is not usable: it takes sizes such as 512M or 8G, at least {}",
                         option, text, in_units(least));
    sizes.push_back(bytes);
  }
  return "";
}

std::string read_run(const PlanCommand& command, Observed& observed) {
  const std::string& path = command.path;
  struct stat st {};
  if (stat(path.c_str(), &st) != 0)
    return fmt::format("cannot read {}: {}; cubeshim profile --observe --out {} makes it", path,
                       base::text_of_error(errno), path);
  const bool is_directory = S_ISDIR(st.st_mode);
  const auto paths = is_directory ? raw_files_in(path) : std::vector<std::string>{path};
  if (paths.empty())
    return fmt::format(
        "there is no observed run in {}; cubeshim profile --observe --out {} makes one", path,
        path);
  std::vector<RawFile> files;
  if (std::string wrong = read_raw_files(paths, files); !wrong.empty()) return wrong;
  std::string why;
  if (observe(files, command.epochs, observed, why)) return "";
  return fmt::format("cannot plan from {}: {}", path, why);
}

std::string mebibytes(std::uint64_t bytes) { return fmt::format("{}M", ((bytes - 1) >> 20) + 1); }

// Removes duplicates, because several shares of a small job may round to the same size.
std::vector<std::uint64_t> once_each(std::vector<std::uint64_t> sizes) {
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

Plans make_plans(const Observed& observed, std::vector<std::uint64_t> rams,
                 std::vector<std::uint64_t> disks, const std::vector<unsigned>& nodes) {
  const base::Config config = Settings().parse().config;
  const std::uint64_t all = ram_for_all(observed, config), data = disk_for_all(observed),
                      on_disk = std::max(data + data / 16, k_least_disk),
                      most = std::max(all != 0 ? all : observed.bytes, k_least_ram);
  const auto part = [&](std::uint64_t eighths) {
    return std::max(most / 8 * eighths, k_least_ram) >> 20 << 20;
  };
  if (rams.empty()) rams = once_each({part(2), part(4), most});
  if (disks.empty()) disks = {0, on_disk};
  Plans plans;
  const auto plan = [&](const Wish& wish) {
    return Planned{wish, forecast(observed, wish, config)};
  };
  for (const bool has_pack : {false, true}) {
    for (const unsigned n : nodes) {
      for (const std::uint64_t disk : disks) {
        for (const std::uint64_t ram : rams)
          plans.table.push_back(plan({.ram = ram, .disk = disk, .nodes = n, .has_pack = has_pack}));
      }
    }
  }
  for (const std::uint64_t ram :
       once_each({part(1), part(2), part(3), part(4), part(5), part(6), part(7), most}))
    plans.curve.push_back(plan({.ram = ram}));
  if (all == 0) return plans;
  // A percentage in CUBESHIM_RAM uses at most half of the free room in CUBESHIM_RAM_DIR. Likewise,
  // a plan uses at most half of the free memory.
  const std::uint64_t half_of_free = base::available_memory() / 2;
  plans.settings["CUBESHIM_RAM"] = mebibytes(std::min(all, half_of_free));
  if (all > half_of_free) {
    plans.settings["CUBESHIM_DISK"] = mebibytes(on_disk);
    plans.settings["CUBESHIM_DISK_DIR"] = "/a/directory/of/a/local/disk";
  }
  return plans;
}

int predict(const PlanCommand& command) {
  std::vector<std::uint64_t> rams, disks;
  for (const auto& wrong : {read_sizes("--ram", command.rams, k_least_ram, rams),
                            read_sizes("--disk", command.disks, 0, disks)}) {
    if (!wrong.empty()) return complain(2, wrong);
  }
  Observed observed;
  if (const std::string wrong = read_run(command, observed); !wrong.empty())
    return complain(1, wrong);
  const Plans plans = make_plans(observed, std::move(rams), std::move(disks), command.nodes);
  fmt::print("{}",
             command.is_json ? plans_as_json(observed, plans) : plans_as_text(observed, plans));
  return 0;
}

}  // namespace

void add_plan(CLI::App& app, int& status) {
  CLI::App* const command =
      app.add_subcommand("plan",
                         "Predict an epoch with other memory, disk, nodes and packs. It needs a "
                         "run that cubeshim profile --observe has watched");
  const auto options = std::make_shared<PlanCommand>();
  add_value(*command, "DIRECTORY", "DIRECTORY", options->path,
            "Where cubeshim profile has put the run; by default cubeshim-profile");
  add_value(*command, "--ram", "SIZE,...", options->rams,
            "Sizes of the memory of each node (CUBESHIM_RAM)")
      ->delimiter(',');
  add_value(*command, "--disk", "SIZE,...", options->disks,
            "Sizes of the local disk of each node (CUBESHIM_DISK), 0 for none")
      ->delimiter(',');
  add_value(*command, "--nodes", "N,...", options->nodes, "Numbers of nodes that share the files")
      ->delimiter(',')
      ->check(whole_number(1, 100'000));
  add_value(*command, "--epochs", "N", options->epochs,
            "Epochs of the run; by default, as often as a file was opened")
      ->check(whole_number(1, 100'000));
  command->add_flag("--json", options->is_json, "Print one JSON object");
  command->callback([options, &status] { status = predict(*options); });
}

}  // namespace cube::cli
