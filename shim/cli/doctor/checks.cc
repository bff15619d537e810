#include "shim/cli/doctor/checks.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "cache/base/clock.h"
#include "cache/base/error_text.h"
#include "cache/base/memory/memory_limits.h"
#include "cache/base/unique_fd.h"
#include "cache/pack/pack_reader.h"
#include "cache/region/large/chunks.h"
#include "shim/cli/settings.h"
#include "shim/cli/similar_path.h"

namespace cube::cli {
namespace {

constexpr std::size_t k_samples = 32;
constexpr int k_deepest = 8;

// Finds a few regular files below a directory.
void find_samples(const std::string& directory, int depth, std::vector<std::string>& samples) {
  DIR* const stream = opendir(directory.c_str());
  if (stream == nullptr) return;
  std::vector<std::string> below;
  for (int seen = 0; seen < 1000 && samples.size() < k_samples; ++seen) {
    const dirent* const entry = readdir(stream);
    if (entry == nullptr) break;
    const std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    const auto path = fmt::format("{}/{}", directory, name);
    if (entry->d_type == DT_REG) samples.push_back(path);
    if (entry->d_type == DT_DIR) below.push_back(path);
  }
  closedir(stream);
  for (const auto& next : below) {
    if (depth > 0 && samples.size() < k_samples) find_samples(next, depth - 1, samples);
  }
}

// Returns the time in microseconds to open and read a whole file: the median of a few files that
// are probably not cached.
double cost_of_a_file(const std::vector<std::string>& samples) {
  std::vector<double> costs;
  std::vector<char> buffer(1 << 20);
  for (const auto& path : samples) {
    const auto began = base::monotonic_ns();
    const auto fd = base::open_fd(path.c_str(), O_RDONLY);
    if (!fd) continue;
    while (read(fd->get(), buffer.data(), buffer.size()) > 0) {
    }
    costs.push_back(static_cast<double>(base::monotonic_ns() - began) / 1000);
  }
  if (costs.empty()) return -1;
  std::nth_element(costs.begin(), costs.begin() + static_cast<long>(costs.size() / 2), costs.end());
  return costs[costs.size() / 2];
}

// Reports files above CUBESHIM_MAX_FILE, which are read in blocks or without the cache.
void check_sizes(const std::string& prefix, const std::vector<std::string>& samples,
                 const base::Config& config, Findings& findings) {
  std::size_t looked_at = 0, too_large = 0;
  std::uint64_t largest = 0;
  std::string large;
  for (const auto& path : samples) {
    struct ::stat st {};
    if (stat(path.c_str(), &st) != 0) continue;
    ++looked_at;
    const auto size = static_cast<std::uint64_t>(st.st_size);
    if (size <= config.max_file) continue;
    ++too_large;
    if (size > largest) large = path;
    largest = std::max(largest, size);
  }
  if (too_large == 0) return;
  const std::string what = fmt::format(
      "prefix {}: {} of {} files that were checked are larger than CUBESHIM_MAX_FILE ({})", prefix,
      too_large, looked_at, in_units(config.max_file));
  const std::string why = why_no_blocks(config);
  if (why.empty()) {
    say(findings, Health::well, "", "{} and are served in blocks of {}", what,
        in_units(config.block));
    return check_large_sample(large, findings);
  }
  say(findings, too_large == looked_at ? Health::broken : Health::slow,
      fmt::format("the largest has {}; run such a job without {} to have them in blocks, or raise "
                  "CUBESHIM_MAX_FILE, and CUBESHIM_RAM "
                  "with it",
                  in_units(largest), why),
      "{} and will not be served", what);
}

void check_prefix(const std::string& prefix, const base::Config& config, Findings& findings) {
  struct ::stat st {};
  struct ::statfs fs {};
  if (stat(prefix.c_str(), &st) != 0 || statfs(prefix.c_str(), &fs) != 0) {
    const int error = errno;
    return say(findings, Health::broken,
               "mount it before the job starts, or correct CUBESHIM_PREFIXES", "prefix {}: {}{}",
               prefix, base::text_of_error(error), path_hint(prefix, error));
  }
  if (!S_ISDIR(st.st_mode))
    return say(findings, Health::broken, "a prefix is a directory; files below it are served",
               "prefix {} is not a directory", prefix);
  if (access(prefix.c_str(), R_OK | X_OK) != 0)
    return say(findings, Health::broken, "the job needs to read and search it", "prefix {}: {}",
               prefix, base::text_of_error(errno));
  char real[PATH_MAX];
  const bool is_linked = realpath(prefix.c_str(), real) != nullptr && prefix != real;
  if (is_linked &&
      std::find(config.prefixes.begin(), config.prefixes.end(), real) == config.prefixes.end())
    say(findings, Health::slow,
        fmt::format("give both if programs use both: CUBESHIM_PREFIXES={}:{}", prefix, real),
        "prefix {} is reached through a symbolic link; files that are opened as {}/... are not "
        "served",
        prefix, real);
  std::vector<std::string> samples;
  find_samples(prefix, k_deepest, samples);
  const double cost = cost_of_a_file(samples);
  const char* const kind = file_system_name(fs.f_type);
  if (cost < 0) {
    say(findings, Health::slow, "nothing was found to read there; is the right thing mounted?",
        "prefix {} ({}) holds no readable files", prefix, kind);
  } else {
    say(findings, Health::well, "", "prefix {} ({}): a file costs {:.0f} us (median of {})", prefix,
        kind, cost, samples.size());
    check_sizes(prefix, samples, config, findings);
    check_locks(prefix, samples, findings);
  }
}

}  // namespace

const char* file_system_name(long type) {
  switch (static_cast<unsigned long>(type)) {
    case 0x65735546: return "FUSE";
    case NFS_SUPER_MAGIC: return "NFS";
    case 0x01021994: return "tmpfs";
    case 0xef53: return "ext4";
    case 0x58465342: return "XFS";
    case BTRFS_SUPER_MAGIC: return "btrfs";
    case OVERLAYFS_SUPER_MAGIC: return "overlayfs";
    case CEPH_SUPER_MAGIC: return "Ceph";
    case 0x0bd00bd0: return "Lustre";
    case 0xff534d42: return "CIFS";
    default: return "a file system";
  }
}

void check_settings(const base::ParsedConfig& parsed, Findings& findings) {
  bool has_wrong_prefixes = false;
  for (const auto& error : parsed.errors) {
    say(findings, Health::broken, "a job would go on with the default instead", "{}", error);
    has_wrong_prefixes |= error.starts_with("--prefix ") || error.starts_with("CUBESHIM_PREFIXES=");
  }
  for (const auto& line : base::unknown_variables(environ))
    say(findings, Health::slow, "it has no effect", "{}", line);
  // A wrong prefix was already reported above.
  if (parsed.config.prefixes.empty() && !has_wrong_prefixes)
    say(findings, Health::broken, "set it to the directories of the slow mount, or give --prefix",
        "CUBESHIM_PREFIXES is not set: nothing is served");
  if (parsed.config.mode == base::Mode::off)
    say(findings, Health::broken, "unset it, or set it to virtual",
        "CUBESHIM_MODE=off: nothing is served");
}

void check_prefixes(const base::Config& config, Findings& findings) {
  for (const auto& pack : config.origins) {
    std::string why;
    if (cache::PackReader::open(pack.file, why) == nullptr)
      say(findings, Health::broken, "correct CUBESHIM_PACKS, or make the pack", "pack for {}: {}",
          pack.prefix, why);
  }
  for (const auto& prefix : config.prefixes) {
    if (!base::is_without_mount(config, prefix)) check_prefix(prefix, config, findings);
  }
}

void check_memory(const base::Config& config, Findings& findings) {
  struct ::statfs fs {};
  if (statfs(config.ram_dir.c_str(), &fs) != 0)
    return say(findings, Health::broken, "CUBESHIM_RAM_DIR takes a directory on a tmpfs", "{}: {}",
               config.ram_dir, base::text_of_error(errno));
  const bool is_memory = fs.f_type == TMPFS_MAGIC;
  if (!is_memory)
    say(findings, Health::slow,
        "the region would be written to that disk: use a tmpfs such as /dev/shm",
        "{} is not a tmpfs", config.ram_dir);
  if (access(config.ram_dir.c_str(), W_OK | X_OK) != 0)
    say(findings, Health::broken, "the job must be able to make a file there", "{}: {}",
        config.ram_dir, base::text_of_error(errno));
  const base::SharedRoom shared =
      base::shared_room(config.ram_dir.c_str()).value_or(base::SharedRoom{});
  const std::uint64_t room = shared.free, most = shared.most_for_region(config.ram.is_percent);
  const std::uint64_t memory = base::available_memory();
  const std::uint64_t wanted = wanted_ram(config, memory);
  const std::string size = config.ram.is_percent
                               ? fmt::format("{} % of the free memory", config.ram.value)
                               : std::string("CUBESHIM_RAM");
  if (most < base::k_least_region) {
    say(findings, Health::broken,
        "in a container, docker run --shm-size=16g, or an emptyDir of medium Memory; or "
        "CUBESHIM_RAM_DIR on another tmpfs",
        "{} has {} and {} of it free: no room for a cache, which takes {} at least and leaves {} "
        "to others",
        config.ram_dir, in_units(shared.total), in_units(room), in_units(base::k_least_region),
        in_units(shared.left_to_others()));
  } else if (wanted > most) {
    say(findings, Health::slow,
        "make it larger (docker run --shm-size=16g, an emptyDir of medium Memory, mount -o "
        "remount,size=16g), set "
        "CUBESHIM_RAM_DIR "
        "to another tmpfs, or ask for less",
        "{} has {} and {} of it free: the cache gets {}, and the rest is for others; {} is {}",
        config.ram_dir, in_units(shared.total), in_units(room), in_units(most), size,
        in_units(wanted));
  } else if (memory != UINT64_MAX && wanted > memory) {
    say(findings, Health::slow, "the cache stops growing when memory is short; ask for less",
        "{} of memory may be used, and {} is {}", in_units(memory), size, in_units(wanted));
  } else {
    say(findings, Health::well, "", "the cache may take {} in {} ({} free there{})",
        in_units(wanted), config.ram_dir, in_units(room),
        memory == UINT64_MAX ? std::string() : ", " + in_units(memory) + " of memory");
  }
}

void check_memory_group(const base::Config& config, Findings& findings) {
  const base::GroupMemory group = base::memory_of_groups();
  if (group.limit == UINT64_MAX) return;
  const std::uint64_t wanted = wanted_ram(config, base::available_memory());
  // The memory of the cache and of the job counts towards the same limit.
  const bool is_tight = wanted > group.left / 4 * 3;
  say(findings, is_tight ? Health::slow : Health::well,
      is_tight ? "the job also needs memory: raise the limit (docker run --memory), or set a lower "
                 "CUBESHIM_RAM"
               : "",
      "the control group allows {} of memory, of which {} are left; the cache counts towards it "
      "with up to {}",
      in_units(group.limit), in_units(group.left), in_units(wanted));
}

void check_region(const base::Config& config, Findings& findings) {
  std::string why;
  const cache::Region* const region = look_at_region(config, why);
  if (region == nullptr && !why.empty()) {
    say(findings, Health::broken, "cubeshim clear --force removes it", "{}", why);
  } else if (region != nullptr) {
    say(findings, Health::well, "", "{} is there: {}, {} in use, {}", region->path(),
        counted(region->header().records.load(), "record", "records"),
        in_units(region->header().used_bytes.load()),
        counted(region->count_processes(), "process", "processes"));
    if (const std::uint64_t large = cache::figures_of_chunks(*region).bytes; large != 0)
      say(findings, Health::well, "", "blocks of large files take {} of it", in_units(large));
  }
}

}  // namespace cube::cli
