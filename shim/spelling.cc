#include "shim/spelling.h"

#include <climits>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "cache/job_report.h"
#include "shim/c_result.h"
#include "shim/path_of_fd.h"
#include "shim/process.h"

namespace cube::shim::spelling {

constinit std::atomic<std::uint32_t> g_opens{0};

namespace {

namespace sys = base::sys;

// Where the prefixes really lie. Never freed: calls come after every destructor.
constinit std::atomic<const std::vector<std::string>*> g_directories{nullptr};

std::string real_path_of_prefix(const std::string& prefix) {
  const long opened = sys::open(prefix.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (sys::failed(opened)) return prefix;
  const base::UniqueFd directory(static_cast<int>(opened));
  char path[PATH_MAX];
  const std::string_view real = path_of_fd(directory.get(), path);
  return real.empty() ? prefix : std::string(real);
}

bool lies_below(std::string_view path, std::string_view directory) {
  return path.size() > directory.size() && path.starts_with(directory) && path[directory.size()] == '/';
}

bool is_regular(int fd) {
  struct ::stat st {};
  return !sys::failed(sys::fstat(fd, &st)) && S_ISREG(st.st_mode);
}

}  // namespace

void start(const base::Config& config, bool leader) {
  auto* const directories = new (std::nothrow) std::vector<std::string>;
  if (directories == nullptr) return;
  for (const auto& prefix : config.prefixes) directories->push_back(leader ? real_path_of_prefix(prefix) : prefix);
  g_directories.store(directories, std::memory_order_release);
}

void look(int fd, const char* path) {
  const auto* const directories = g_directories.load(std::memory_order_acquire);
  // Something below a prefix was opened: the names agree.
  if (directories == nullptr || process::attached_cache() != nullptr) {
    g_opens.store(k_done, std::memory_order_relaxed);
    return;
  }
  char room[PATH_MAX];
  const std::string_view real = path_of_fd(fd, room);
  for (const auto& directory : *directories) {
    const std::string_view spelled(path);
    // By the number of an fd, it is the file that was opened before.
    if (!lies_below(real, directory) || spelled.starts_with("/proc/") || spelled.starts_with("/dev/") || !is_regular(fd))
      continue;
    if (g_opens.exchange(k_done, std::memory_order_relaxed) == k_done) return;
    const KeepErrno keep;
    // The report is the job's, so that this process needs a row there.
    auto* const cache = process::cache();
    if (cache != nullptr)
      cache::note_misspelled(cache->region(), cache->region().own_job(), spelled.starts_with('/') ? spelled : real);
    return;
  }
}

}  // namespace cube::shim::spelling
