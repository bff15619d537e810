// The checks of `cubeshim doctor`. Each says what it found and, if something is wrong, what to do.
#pragma once

#include <fmt/core.h>
#include <sys/resource.h>

#include <string>
#include <vector>

#include "cache/base/settings/config.h"

namespace cube::cli {

enum class Health { well, slow, broken };  // broken: nothing is served; slow: it could be faster

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

// The name of statfs's f_type, such as "ext4".
const char* file_system_name(long type);
void check_settings(const base::ParsedConfig& parsed, Findings& findings);
// Checks whether each prefix exists, is a directory and can be read; reports its file system, and
// how long a file takes there.
void check_prefixes(const base::Config& config, Findings& findings);
// Reports the directory of the region: its kind, its room, and how much of that may be used.
void check_memory(const base::Config& config, Findings& findings);
// The file at the region's path.
void check_region(const base::Config& config, Findings& findings);
// The directory on disk, if one is configured: whether it can be used, its room, its contents.
void check_disk(const base::Config& config, Findings& findings);
// The servers of CUBESHIM_CLUSTER: whether they answer and have the flags and the room that they
// need, and whether other nodes share the same prefixes under the same ids.
void check_cluster(const base::Config& config, Findings& findings);
// Checks whether and how files can be prefetched.
void check_prefetch(const base::Config& config, Findings& findings);
// Files above CUBESHIM_MAX_FILE: whether they are served in blocks and read ahead.
void check_large_files(const base::Config& config, Findings& findings);
// The setting that keeps large files from being served in blocks; empty if none does.
std::string why_no_blocks(const base::Config& config);
// Checks whether repeated stats of one of these files show the same version.
void check_large_sample(const std::string& path, Findings& findings);
// The control group's limit, if there is one.
void check_memory_group(const base::Config& config, Findings& findings);
// Looks for HDF5 files among these files of a prefix, and checks whether the mount supports locks.
void check_locks(const std::string& prefix, const std::vector<std::string>& samples,
                 Findings& findings);
// Reports the system's release and glibc, and whether they are new enough for the library.
void check_library(Findings& findings);
// Checks whether the loader can preload the library into this program.
void check_program(const std::string& program, Findings& findings);
// Checks which libraries LD_PRELOAD already names.
void check_preloaded(Findings& findings);
// True if this process has a seccomp filter. Containers have one.
bool is_filtered();
// Tries the system calls that the library makes: an old kernel lacks some, and a sandbox may refuse
// them.
void check_kernel(const base::Config& config, Findings& findings);
// Returns the soft limit, or UINT64_MAX if there is none.
std::uint64_t limit_of(__rlimit_resource resource);
// A bucket, s3://NAME/PREFIX: endpoint, region, credentials, clock, the rights to list and to get.
void check_bucket(const std::string& uri, Findings& findings);
// The ulimits.
void check_limits(const base::Config& config, Findings& findings);

}  // namespace cube::cli
