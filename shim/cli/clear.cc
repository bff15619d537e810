// cubeshim clear: removes the remains of a cache: its region, its socket, its directory on disk,
// and the learned lists of data sets.
#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <glob.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <memory>

#include "cache/base/error_text.h"
#include "cache/base/sys.h"
#include "cache/base/unique_fd.h"
#include "cache/region/life/process_slots.h"
#include "cache/region/mailbox/mailbox.h"
#include "cache/tier/disk/disk_maintenance.h"
#include "shim/cli/color.h"
#include "shim/cli/commands.h"
#include "shim/cli/complaint.h"
#include "shim/cli/settings.h"

namespace cube::cli {
namespace {

struct Clear {
  Settings settings;
  bool force = false;
};

std::string removed_word() { return painted("removed", Color::good); }

enum class Done { removed, nothing, failed };

Done clear_region(const base::Config& config, bool force) {
  std::string why;
  cache::Region* const region = look_at_region(config, why);
  if (region == nullptr && why.empty()) return Done::nothing;
  if (region == nullptr && !force) {
    tell("cubeshim: {}\n", why);
    return Done::failed;
  }
  if (region != nullptr) {
    const std::uint32_t users = region->count_processes();
    if (users != 0 && !force) {
      tell(
          "cubeshim: {} is used by {}: end these processes, or give --force (they go on, and cache "
          "nothing new)\n",
          region->path(), counted(users, "process", "processes"));
      return Done::failed;
    }
    const auto removed = region->retire();
    if (!removed) {
      tell("cubeshim: cannot remove {}: {}\n", region->path(),
           base::text_of_error(removed.error().value));
      return Done::failed;
    }
    fmt::print("{} {} ({})\n", removed_word(), region->path(),
               in_units(region->header().used_bytes.load()));
    return Done::removed;
  }
  const std::string path = cache::Region::path_of(config.ram_dir, config.name);
  const long removed = base::sys::unlink(path.c_str());
  if (base::sys::failed(removed)) {
    tell("cubeshim: cannot remove {}: {}\n", path, base::text_of_error(static_cast<int>(-removed)));
    return Done::failed;
  }
  fmt::print("{} {}, which was not a region of this version\n", removed_word(), path);
  return Done::removed;
}

// Removes a socket that a killed process has left behind.
Done clear_socket(const std::string& path) {
  sockaddr_un address{};
  struct ::stat st {};
  if (path.size() >= sizeof address.sun_path || lstat(path.c_str(), &st) != 0 ||
      !S_ISSOCK(st.st_mode) || st.st_uid != geteuid())
    return Done::nothing;
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, path.size());
  const base::UniqueFd client(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const bool is_dead =
      connect(client.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 &&
      errno == ECONNREFUSED;
  if (!is_dead) return Done::nothing;
  if (unlink(path.c_str()) != 0) {
    tell("cubeshim: cannot remove {}: {}\n", path, base::text_of_error(errno));
    return Done::failed;
  }
  fmt::print("{} {}, on which no process listened\n", removed_word(), path);
  return Done::removed;
}

// The wildcard is as long as the word that it replaces, so that socket_path_of() shortens the same
// paths.
constexpr const char* k_any_socket = "????????";

// Removes the sockets of announcements and of gateways.
Done clear_sockets(const base::Config& config) {
  const std::string path = cache::Region::path_of(config.ram_dir, config.name);
  Done all = clear_socket(cache::Region::socket_path_of(path));
  glob_t found{};
  if (glob(cache::Mailbox::socket_path_of(path, k_any_socket).c_str(), GLOB_NOSORT, nullptr,
           &found) == 0) {
    for (std::size_t i = 0; i < found.gl_pathc; ++i) {
      const Done one = clear_socket(found.gl_pathv[i]);
      if (all == Done::nothing || one == Done::failed) all = one;
    }
  }
  globfree(&found);
  return all;
}

Done clear_disk(const base::Config& config, bool force) {
  if (config.disk_dir.empty()) return Done::nothing;
  const auto fail_with = [](const std::string& line) {
    tell("cubeshim: {}\n", line);
    return Done::failed;
  };
  std::string why;
  const auto directory = cache::DiskDirectory::look(config.disk_dir, config.name, why);
  if (!directory && directory.error().value == ENOENT) return Done::nothing;
  if (!directory) return fail_with(why);
  if (!force && !directory->check_version(true, why)) return fail_with(why + ", or give --force");
  const auto removed = cache::remove_disk(*directory, force);
  if (!removed && removed.error().value == EBUSY)
    return fail_with(
        fmt::format("{} is used by a job: end it, or give --force (the job goes on, and keeps "
                    "nothing on the disk)",
                    directory->path()));
  if (!removed)
    return fail_with(fmt::format("cannot remove {}: {}", directory->path(),
                                 base::text_of_error(removed.error().value)));
  fmt::print("{} {} ({}, {})\n", removed_word(), directory->path(),
             counted(removed->segments, "segment", "segments"), in_units(removed->bytes));
  if (removed->has_others) fmt::print("{} is still there: it has other files\n", directory->path());
  return Done::removed;
}

// Removes the files that tell Python workers which files a data set reads
// (prefetch/python/cubeshim/_learned.py). Nothing relies on these files, so they are removed even
// if they are in use.
Done clear_learned(const std::string& parent, const std::string& name) {
  const std::string path = fmt::format("{}/cubeshim-learned-{}-{}", parent, geteuid(), name);
  const base::UniqueFd fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct ::stat st {};
  if (!fd || fstat(fd.get(), &st) != 0 || st.st_uid != geteuid()) return Done::nothing;
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(fdopendir(dup(fd.get())), closedir);
  while (const dirent* const entry = listing != nullptr ? readdir(listing.get()) : nullptr) {
    const std::string_view file = entry->d_name;
    if (file.ends_with(".index") || file.ends_with(".paths")) unlinkat(fd.get(), entry->d_name, 0);
  }
  if (rmdir(path.c_str()) != 0) {
    tell("cubeshim: cannot remove {}: {}\n", path, base::text_of_error(errno));
    return Done::failed;
  }
  fmt::print("{} {}, what was learned about data sets\n", removed_word(), path);
  return Done::removed;
}

int clear(const Clear& clear) {
  const auto parsed = clear.settings.parse();
  if (tell_errors(parsed)) return 2;
  const base::Config& config = parsed.config;
  // If the region is in use, its processes may also use the disk. So nothing else is removed if the
  // region must stay.
  const Done region = clear_region(config, clear.force);
  if (region == Done::failed) return 1;
  const Done rest[] = {
      clear_sockets(config), clear_disk(config, clear.force),
      clear_learned(config.ram_dir, config.name),
      config.disk_dir.empty() ? Done::nothing : clear_learned(config.disk_dir, config.name)};
  if (std::find(std::begin(rest), std::end(rest), Done::failed) != std::end(rest)) return 1;
  const bool is_any = region == Done::removed ||
                      std::find(std::begin(rest), std::end(rest), Done::removed) != std::end(rest);
  if (!is_any)
    fmt::print("nothing to clear: there is no cache named {} in {}{}\n", config.name,
               config.ram_dir, config.disk_dir.empty() ? std::string() : " or " + config.disk_dir);
  return 0;
}

}  // namespace

void add_clear(CLI::App& app, int& status) {
  CLI::App* const command =
      app.add_subcommand("clear", "Remove a cache that was kept or left behind, on disk too");
  const auto options = std::make_shared<Clear>();
  options->settings.add_to(*command, Settings::Which::of_the_places);
  command->add_flag("--force", options->force,
                    "Remove it even if it is in use, or this version cannot read it");
  add_color_option(*command);
  command->callback([options, &status] { status = clear(*options); });
}

}  // namespace cube::cli
