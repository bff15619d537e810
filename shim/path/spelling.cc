#include "shim/path/spelling.h"

#include <climits>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "cache/base/path.h"
#include "cache/base/unique_fd.h"
#include "cache/report/notes.h"
#include "shim/fd/placeholder.h"
#include "shim/path/path_of_fd.h"
#include "shim/process/attachment.h"
#include "shim/process/c_result.h"
#include "shim/process/process.h"

namespace cube::shim::spelling {

constinit std::atomic<std::uint32_t> g_opens{0};

namespace {

namespace sys = base::sys;

using startup_directory::DirectoryLook;
// The real paths of the prefixes. Never freed, because the program may still call us after all
// destructors have run.
constinit std::atomic<const std::vector<DirectoryLook>*> g_directories{nullptr};

// Returns the path of the directory and closes its fd. Returns an empty view if `opened` is an
// error.
std::string_view path_and_close(long opened, char (&path)[PATH_MAX]) {
  const base::UniqueFd directory(static_cast<int>(opened));
  return directory ? path_of_fd(directory.get(), path) : std::string_view();
}

bool lies_below(std::string_view path, std::string_view directory) {
  return !directory.empty() && base::is_below(path, directory);
}

struct PathKind {
  bool is_regular = false, may_be_remote = false;
};
// Determines the kind of the file without asking a server. A file on a server has no local device.
PathKind kind_of(int fd) {
  struct ::statx x {};
  const long error = sys::statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &x);
  return sys::failed(error) ? PathKind() : PathKind{S_ISREG(x.stx_mode), x.stx_dev_major == 0};
}

// Returns the real path of a prefix, or an empty view if the kernel has not cached the path. After
// an open of a file below the prefix, the kernel has cached the path.
std::string_view known_path(const std::string& prefix, char (&path)[PATH_MAX]) {
  const long opened = startup_directory::open_known(prefix.c_str());
  const std::string_view found = path_and_close(opened, path);
  // A signal handler or another thread may have parked a higher fd.
  if (!sys::failed(opened) && process::owns_table())
    placeholder::fd_was_freed(static_cast<int>(opened));
  return found;
}

// True if the open file lies below this directory. `real` is the file's real path.
bool lies_in(std::string_view real, int fd, const DirectoryLook& directory) {
  if (lies_below(real, directory.path)) return kind_of(fd).is_regular;
  if (directory.place == DirectoryLook::Place::real) return false;
  const PathKind kind = kind_of(fd);
  const bool may_be_there =
      kind.may_be_remote || directory.place == DirectoryLook::Place::behind_a_link;
  char path[PATH_MAX];
  return kind.is_regular && may_be_there && lies_below(real, known_path(directory.path, path));
}

}  // namespace

void start(const base::Config& config, std::vector<DirectoryLook> looks) {
  auto* const directories = new (std::nothrow) std::vector<DirectoryLook>(std::move(looks));
  if (directories == nullptr) return;
  if (directories->empty()) {
    for (const auto& prefix : config.prefixes) directories->push_back({.path = prefix});
  }
  g_directories.store(directories, std::memory_order_release);
}

void look(int fd, const char* path) {
  const auto* const directories = g_directories.load(std::memory_order_acquire);
  // If the process is attached, it has opened a file by a path that begins with a prefix. So the
  // program's spelling agrees with the settings.
  if (directories == nullptr || attachment::attached_cache() != nullptr) {
    g_opens.store(k_done, std::memory_order_relaxed);
    return;
  }
  char room[PATH_MAX];
  const std::string_view real = path_of_fd(fd, room);
  const std::string_view spelled(path);
  // Such a path may name an fd, whose file was opened by another path.
  if (spelled.starts_with("/proc/") || spelled.starts_with("/dev/")) return;
  for (const auto& directory : *directories) {
    if (!lies_in(real, fd, directory)) continue;
    if (g_opens.exchange(k_done, std::memory_order_relaxed) == k_done) return;
    const KeepErrno keep;
    // The job's report needs the note, so the process attaches.
    auto* const cache = attachment::cache();
    if (cache != nullptr)
      cache::note_misspelled(cache->region(), cache->region().own_job(),
                             spelled.starts_with('/') ? spelled : real);
    return;
  }
}

}  // namespace cube::shim::spelling
