// cubeshim doctor: checks the directory on disk.
#include <linux/magic.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "cache/base/error_text.h"
#include "cache/tier/disk/disk_maintenance.h"
#include "shim/cli/doctor/checks.h"
#include "shim/cli/settings.h"

namespace cube::cli {
namespace {

constexpr std::uint64_t k_least_room = 4 << 20;
constexpr std::uint64_t k_fuse = 0x65735546, k_cifs = 0xff534d42;

std::string names_of(const std::vector<std::uint32_t>& numbers) {
  constexpr std::size_t k_shown = 3;
  std::string names;
  for (std::size_t i = 0; i < std::min(numbers.size(), k_shown); ++i)
    names += fmt::format("{}segment-{:08}", i == 0 ? "" : ", ", numbers[i]);
  return names + (numbers.size() > k_shown ? " ..." : "");
}

void check_contents(const cache::DiskDirectory& directory, Findings& findings) {
  const auto found = cache::survey_disk(directory);
  if (!found)
    return say(findings, Health::slow, "", "{}: {}", directory.path(),
               base::text_of_error(found.error().value));
  const auto bad = found->no_footer.size() + found->unreadable.size();
  say(findings, Health::well, "", "{} is there: {}, {} in use, {} of {} segments whole{}{}",
      directory.path(), counted(found->records, "record", "records"), in_units(found->bytes),
      found->segments - bad - found->being_written, found->segments,
      found->being_written == 0 ? std::string()
                                : fmt::format(", {} being written", found->being_written),
      cache::is_in_use(directory) ? ", used by a job" : "");
  if (!found->no_footer.empty())
    say(findings, Health::slow, "the next job keeps what is sound in it",
        "{} in {} {} incomplete or damaged: {}",
        counted(found->no_footer.size(), "segment", "segments"), directory.path(),
        found->no_footer.size() == 1 ? "is" : "are", names_of(found->no_footer));
  if (!found->unreadable.empty())
    say(findings, Health::slow, "check the disk, or remove it: cubeshim clear",
        "{} in {} cannot be read: {}", counted(found->unreadable.size(), "segment", "segments"),
        directory.path(), names_of(found->unreadable));
}

}  // namespace

void check_disk(const base::Config& config, Findings& findings) {
  if (config.disk_dir.empty()) return;
  struct ::statfs fs {};
  constexpr const char* k_advice = "it takes a writable directory on a local disk";
  const std::string parent = config.disk_dir.substr(0, config.disk_dir.rfind('/') + 1);
  if (access(config.disk_dir.c_str(), F_OK) != 0 && errno == ENOENT &&
      access(parent.c_str(), W_OK | X_OK) == 0)
    return say(findings, Health::well, "", "CUBESHIM_DISK_DIR={}: the first job will create it",
               config.disk_dir);
  if (access(config.disk_dir.c_str(), W_OK | X_OK) != 0 ||
      statfs(config.disk_dir.c_str(), &fs) != 0)
    return say(findings, Health::slow, k_advice, "CUBESHIM_DISK_DIR={}: {}", config.disk_dir,
               base::text_of_error(errno));
  const auto type = static_cast<std::uint64_t>(fs.f_type);
  const auto block = static_cast<std::uint64_t>(fs.f_bsize);
  const std::uint64_t available = static_cast<std::uint64_t>(fs.f_bavail) * block;
  const std::uint64_t kept = static_cast<std::uint64_t>(fs.f_blocks) * block / 10;
  const std::uint64_t room = available > kept ? available - kept : 0;
  const std::string place = fmt::format("{} ({})", config.disk_dir, file_system_name(fs.f_type));
  std::string why;
  const auto directory = cache::DiskDirectory::look(config.disk_dir, config.name, why);
  const bool is_new = !directory && directory.error().value == ENOENT;
  if (type == NFS_SUPER_MAGIC || type == k_fuse || type == (k_cifs & 0xffffffff)) {
    say(findings, Health::slow, "use a local disk: one node's cache cannot be another's",
        "{} is not a local disk", place);
  } else if (type == TMPFS_MAGIC) {
    say(findings, Health::slow,
        "use a disk: what lies there is gone after a reboot, and takes memory until then",
        "{} is memory", place);
  } else if (room < k_least_room && is_new) {
    say(findings, Health::slow,
        "a tenth of the disk stays free in any case: remove something, or use another disk",
        "{} has {} free", place, in_units(available));
  } else {
    say(findings, Health::well, "",
        "{} in {}, where {} may be added ({} free, a tenth of the disk stays free)",
        config.disk.is_percent ? fmt::format("{} % of the room", config.disk.value)
                               : in_units(config.disk.value),
        place, in_units(room), in_units(available));
  }
  if (is_new) return;
  if (!directory || !directory->check_version(true, why))
    return say(findings, Health::slow,
               "remove it (cubeshim clear --force), or set another CUBESHIM_NAME", "{}", why);
  check_contents(*directory, findings);
}

}  // namespace cube::cli
