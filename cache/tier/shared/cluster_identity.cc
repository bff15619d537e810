#include "cache/tier/shared/cluster_identity.h"

#include <algorithm>

#include "cache/base/hash.h"
#include "cache/base/sys.h"

namespace cube::cache {
namespace {

// Identifies the machine since its last boot, because device numbers mean something only there.
std::uint64_t node_tag() {
  char text[64];
  const long n = base::sys::read_small_file("/proc/sys/kernel/random/boot_id", text, sizeof text);
  return base::sys::failed(n) ? 0 : base::hash_bytes(text, static_cast<std::size_t>(n));
}

// Identifies the job and its user. Another user's record needs a stat at the origin, which shows
// whether this user may see the file. So the tags of different users must differ.
std::uint64_t job_tag(const std::string& job) {
  if (job.empty()) return 0;
  const std::uint64_t parts[] = {base::hash_path(job), base::sys::geteuid()};
  return base::hash_bytes(parts, sizeof parts) | 1;
}

}  // namespace

ClusterTags cluster_tags(const base::Config& config) {
  return {.job = job_tag(config.cluster_job), .node = node_tag()};
}

bool read_cluster_login(const std::string& path, std::string& login, std::string& why) {
  if (path.empty()) return true;
  char text[512];
  const long n = base::sys::read_small_file(path.c_str(), text, sizeof text);
  login.assign(text, base::sys::failed(n) ? 0 : static_cast<std::size_t>(n));
  login.resize(std::min(login.find_first_of("\r\n"), login.size()));
  const std::size_t colon = login.find(':');
  if (colon == std::string::npos || colon == 0) {
    why = fmt::format(
        "CUBESHIM_CLUSTER_LOGIN_FILE=\"{}\": it cannot be read, or its first line is not "
        "USER:PASSWORD",
        path);
    return false;
  }
  login[colon] = ' ';
  return true;
}

std::uint64_t largest_cluster_value(const base::Config& config) {
  return std::max(config.max_file, config.block) + sizeof(ClusterHead) + k_record_alignment;
}

}  // namespace cube::cache
