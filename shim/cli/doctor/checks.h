// The checks of `cubeshim doctor`. A check says what it found and, where that is not well, what to
// do.
#pragma once

#include <fmt/core.h>
#include <sys/resource.h>

#include <string>
#include <vector>

#include "cache/base/settings/config.h"

namespace cube::cli {

enum class Health { well, slow, broken };  // broken: nothing is served; slow: less than could be

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

// "ext4", of statfs's f_type.
const char* file_system_name(long type);
void check_settings(const base::ParsedConfig& parsed, Findings& findings);
// Is there, is a directory, can be read; of which file system; what a file costs there.
void check_prefixes(const base::Config& config, Findings& findings);
// The directory of the region: its kind, its room, what of it may be used.
void check_memory(const base::Config& config, Findings& findings);
// The thing that lies under the region's name.
void check_region(const base::Config& config, Findings& findings);
// The directory on disk, if there is to be one: whether it can be used, its room, what is in it.
void check_disk(const base::Config& config, Findings& findings);
// The servers of CUBESHIM_CLUSTER: whether they answer, and have the flags and the room that they
// need; whether other nodes share the same prefixes by the same ids.
void check_cluster(const base::Config& config, Findings& findings);
// Whether and how files can be fetched before they are asked for.
void check_prefetch(const base::Config& config, Findings& findings);
// Files above CUBESHIM_MAX_FILE: whether they are served in blocks and read ahead.
void check_large_files(const base::Config& config, Findings& findings);
// Empty: they are served so. Else the setting that is against it.
std::string why_no_blocks(const base::Config& config);
// Looks at one of these files: does the mount show it as the same version each time?
void check_large_sample(const std::string& path, Findings& findings);
// The control group's limit, where there is one.
void check_memory_group(const base::Config& config, Findings& findings);
// HDF5 among these files of a prefix, and whether the mount has locks.
void check_locks(const std::string& prefix, const std::vector<std::string>& samples,
                 Findings& findings);
// The system's release and glibc, and what the library needs of it.
void check_library(Findings& findings);
// Can the loader preload the library into this program?
void check_program(const std::string& program, Findings& findings);
// LD_PRELOAD as it is already.
void check_preloaded(Findings& findings);
// Has this process a seccomp filter? Containers have one.
bool is_filtered();
// System calls that the library makes: an old kernel lacks some, a sandbox may refuse them.
void check_kernel(const base::Config& config, Findings& findings);
// The soft limit; UINT64_MAX: there is none.
std::uint64_t limit_of(__rlimit_resource resource);
// ulimits.
void check_limits(const base::Config& config, Findings& findings);

}  // namespace cube::cli
