#include "shim/calls/locks.h"

#include "shim/process/attachment.h"
#include "shim/threads/own_threads.h"

namespace cube::shim::locks {

using cache::LargeFile;

void before_lock_of_large(int fd, Owner owner) {
  if (owner != Owner::flock && owner != Owner::open_file) return;
  const OpenFileRef file = g_fds.acquire_kind(fd, RowKind::large);
  if (!file) return;
  file->large->note_lock(owner == Owner::flock ? LargeFile::Lock::flock : LargeFile::Lock::other);
  if (auto* const reader = own_threads::reader(); reader != nullptr)
    reader->mapped().let_go_of(*file->large);
}

void after_lock_of_large(int fd, Owner owner) {
  const OpenFileRef file = g_fds.acquire_kind(fd, RowKind::large);
  if (!file) return;
  if (owner == Owner::flock_ends) {
    file->large->note_unlock();
  } else if (cache::FileCache* const cache = attachment::attached_cache(); cache != nullptr) {
    cache->large().look_after_lock(*file->large, fd);
  }
}

}  // namespace cube::shim::locks
