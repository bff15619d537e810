// The checks of `cubeshim doctor`. Each check adds findings; a finding about a problem also gives
// advice.
#pragma once

#include <fmt/core.h>
#include <sys/resource.h>

#include <string>
#include <vector>

#include "cache/base/settings/config.h"

namespace cube::cli {

enum class Health { well, slow, broken };  // broken: nothing is served; slow: jobs could be faster

struct Finding {
  Health health = Health::well;
  std::string what, advice;
};
using Findings = std::vector<Finding>;

template <typename... Args>
void say(Findings& findings, Health health, std::string advice, fmt::format_string<Args...> format,
         Args&&... args) {
  findings.push_back(
      {health, fmt::format(format, static_cast<Args&&>(args)...), std::move(advice)});
}

// Returns the name of a file system type (f_type of statfs), such as "ext4".
const char* file_system_name(long type);
void check_settings(const base::ParsedConfig& parsed, Findings& findings);
// Checks whether each prefix exists, is a directory and can be read. Reports the file system of the
// prefix, and the time per file on it.
void check_prefixes(const base::Config& config, Findings& findings);
// Reports the file system, the room and the usable room of the region's directory.
void check_memory(const base::Config& config, Findings& findings);
// Checks the file at the region's path.
void check_region(const base::Config& config, Findings& findings);
// If a disk directory is set, checks whether it can be used, and reports its room and its contents.
void check_disk(const base::Config& config, Findings& findings);
// Checks whether the servers of CUBESHIM_CLUSTER answer and have the necessary flags and room, and
// whether other nodes use the same ids for the same prefixes.
void check_cluster(const base::Config& config, Findings& findings);
// Checks whether files can be prefetched, and by which means.
void check_prefetch(const base::Config& config, Findings& findings);
// Checks whether files above CUBESHIM_MAX_FILE are served in blocks and read ahead.
void check_large_files(const base::Config& config, Findings& findings);
// Returns the setting that prevents large files from being served in blocks, or an empty string.
std::string why_no_blocks(const base::Config& config);
// Checks whether repeated stats of one of these files show the same version.
void check_large_sample(const std::string& path, Findings& findings);
// Checks the memory limit of the control group, if there is one.
void check_memory_group(const base::Config& config, Findings& findings);
// If there are HDF5 files among these files of a prefix, checks whether the mount supports locks.
void check_locks(const std::string& prefix, const std::vector<std::string>& samples,
                 Findings& findings);
// Reports the releases of the system and of glibc, and whether they are new enough for the library.
void check_library(Findings& findings);
// Checks whether the loader can preload the library into this program.
void check_program(const std::string& program, Findings& findings);
// Checks which libraries LD_PRELOAD already names.
void check_preloaded(Findings& findings);
// True if this process has a seccomp filter. Processes in containers usually have a filter.
bool is_filtered();
// Tries the system calls that the library makes. An old kernel may lack some of them, and a sandbox
// may refuse them.
void check_kernel(const base::Config& config, Findings& findings);
// Returns the soft limit of the resource, or UINT64_MAX if there is none.
std::uint64_t limit_of(__rlimit_resource resource);
// Checks a bucket (s3://NAME/PREFIX): endpoint, region, credentials, clock, and the rights to list
// and to get objects.
void check_bucket(const std::string& uri, Findings& findings);
// Checks the ulimits.
void check_limits(const base::Config& config, Findings& findings);

}  // namespace cube::cli
