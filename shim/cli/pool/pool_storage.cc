#include "shim/cli/pool/pool_storage.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <pwd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "cache/base/error_text.h"

namespace cube::cli {
namespace {

constexpr int k_takes = 100;

bool is_at(const std::string& path, const struct ::stat& file) {
  struct ::stat now {};
  return lstat(path.c_str(), &now) == 0 && now.st_dev == file.st_dev && now.st_ino == file.st_ino;
}

}  // namespace

std::string PoolStorage::take(const std::string& path, const std::string& account) {
  // Between the open and the lock, another pool may end and unlink the file. So try again.
  for (int tries = 0; tries < k_takes; ++tries) {
    base::UniqueFd fd(
        open(path.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600));
    struct ::stat st {};
    if (!fd || fstat(fd.get(), &st) != 0)
      return fmt::format("{}: {}", path, base::text_of_error(errno));
    if (!S_ISREG(st.st_mode)) return fmt::format("{}: not a file", path);
    if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK)
        return fmt::format(
            "{} is in use by another memcached: choose another --name or --nvme DIRECTORY", path);
      return fmt::format("{}: it cannot be locked (flock): {}", path, base::text_of_error(errno));
    }
    if (!is_at(path, st)) continue;
    const passwd* const entry = account.empty() ? nullptr : getpwnam(account.c_str());
    const bool is_own = st.st_uid == geteuid() || (entry != nullptr && st.st_uid == entry->pw_uid);
    // If another user made the file, that user could still have it open or have another link to it.
    // That user could then read and change the files that the nodes share.
    if (!is_own || st.st_nlink != 1 || (st.st_mode & (S_IRWXG | S_IRWXO)) != 0)
      return fmt::format("{}: others may read or change it; remove it", path);
    if (entry != nullptr && fchown(fd.get(), entry->pw_uid, entry->pw_gid) != 0)
      return fmt::format("{}: {}", path, base::text_of_error(errno));
    path_ = path;
    fd_ = std::move(fd);
    return {};
  }
  return fmt::format("{}: other processes keep making and removing it", path);
}

void PoolStorage::keep_at_exec() const {
  if (fd_) fcntl(fd_.get(), F_SETFD, 0);
}

void PoolStorage::remove() {
  if (fd_) unlink(path_.c_str());
  fd_.reset();
}

void remove_unused_storage(const std::string& path) {
  const base::UniqueFd fd(open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  struct ::stat st {};
  if (!fd || fstat(fd.get(), &st) != 0 || flock(fd.get(), LOCK_EX | LOCK_NB) != 0) return;
  if (is_at(path, st)) unlink(path.c_str());
}

}  // namespace cube::cli
