// cubeshim clear: takes a region away that was kept, or left by processes that were killed.
#include <fmt/format.h>

#include <cerrno>
#include <memory>

#include "cache/base/sys.h"
#include "cache/ram/process_slots.h"
#include "shim/cli/commands.h"
#include "shim/cli/settings.h"

namespace cube::cli {
namespace {

struct Clear {
  Settings settings;
  bool force = false;
};

int clear(const Clear& clear) {
  const auto parsed = clear.settings.parse();
  for (const auto& error : parsed.errors) fmt::print(stderr, "cubeshim: {}\n", error);
  if (!parsed.errors.empty()) return 2;
  std::string why;
  cache::Region* const region = look_at_region(parsed.config, why);
  if (region == nullptr && why.empty()) {
    fmt::print("nothing to clear: there is no cache named {} in {}\n", parsed.config.name, parsed.config.ram_dir);
    return 0;
  }
  if (region == nullptr && !clear.force) {
    fmt::print(stderr, "cubeshim: {}\n", why);
    return 1;
  }
  if (region != nullptr) {
    const std::uint32_t users = region->count_processes();
    if (users != 0 && !clear.force) {
      fmt::print(stderr, "cubeshim: {} is used by {} processes: end them, or give --force (they go on, and cache nothing new)\n",
                 region->path(), users);
      return 1;
    }
    const auto removed = region->retire();
    if (!removed) {
      fmt::print(stderr, "cubeshim: cannot remove {}: {}\n", region->path(), strerrordesc_np(removed.error().value));
      return 1;
    }
    fmt::print("removed {} ({})\n", region->path(), in_units(region->header().used_bytes.load()));
    return 0;
  }
  const std::string path = cache::Region::path_of(parsed.config.ram_dir, parsed.config.name);
  const long removed = base::sys::unlink(path.c_str());
  if (base::sys::failed(removed)) {
    fmt::print(stderr, "cubeshim: cannot remove {}: {}\n", path, strerrordesc_np(static_cast<int>(-removed)));
    return 1;
  }
  fmt::print("removed {}, which was no region of this version\n", path);
  return 0;
}

}  // namespace

void add_clear(CLI::App& app, int& status) {
  CLI::App* const command = app.add_subcommand("clear", "Remove a cache that was kept or left behind");
  const auto options = std::make_shared<Clear>();
  options->settings.add_to(*command, Settings::Which::of_the_region);
  command->add_flag("--force", options->force, "Also one that is in use, or that this version cannot read");
  command->callback([options, &status] { status = clear(*options); });
}

}  // namespace cube::cli
