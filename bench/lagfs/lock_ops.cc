// POSIX locks that lagfs keeps (--own-locks), as the servers of JuiceFS or GlusterFS do: the kernel
// does not know their holders, and /proc does not show them. Each lock is of its whole file. A
// request never waits for a lock. Locks are neither counted nor slow.
#include <fcntl.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "operations.h"

namespace cube::lagfs::operations {
namespace {

struct Held {
  fuse_ino_t id;
  std::uint64_t owner;
  short type;
  pid_t holder;
};

std::mutex g_mutex;
std::vector<Held> g_held;  // guarded by g_mutex

const Held* find_conflict(fuse_ino_t id, std::uint64_t owner, short type) {
  const auto found = std::ranges::find_if(g_held, [&](const Held& held) {
    return held.id == id && held.owner != owner && (type == F_WRLCK || held.type == F_WRLCK);
  });
  return found == g_held.end() ? nullptr : &*found;
}

void drop(fuse_ino_t id, std::uint64_t owner) {
  std::erase_if(g_held, [&](const Held& held) { return held.id == id && held.owner == owner; });
}

}  // namespace

void getlk(fuse_req_t request, fuse_ino_t id, fuse_file_info* file, struct ::flock* lock) {
  const std::lock_guard guard(g_mutex);
  const Held* const other = find_conflict(id, file->lock_owner, lock->l_type);
  lock->l_start = lock->l_len = 0;
  lock->l_type = other != nullptr ? other->type : static_cast<short>(F_UNLCK);
  lock->l_pid = other != nullptr ? other->holder : 0;
  fuse_reply_lock(request, lock);
}

void setlk(fuse_req_t request, fuse_ino_t id, fuse_file_info* file, struct ::flock* lock, int) {
  const std::lock_guard guard(g_mutex);
  if (lock->l_type != F_UNLCK && find_conflict(id, file->lock_owner, lock->l_type) != nullptr) {
    fuse_reply_err(request, EAGAIN);
    return;
  }
  drop(id, file->lock_owner);
  if (lock->l_type != F_UNLCK) g_held.push_back({id, file->lock_owner, lock->l_type, lock->l_pid});
  fuse_reply_err(request, 0);
}

void drop_locks(fuse_ino_t id, std::uint64_t owner) {
  const std::lock_guard guard(g_mutex);
  drop(id, owner);
}

}  // namespace cube::lagfs::operations
