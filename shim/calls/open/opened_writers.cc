#include "shim/calls/open/opened_writers.h"

#include <climits>

#include "cache/base/process/lifted_fd_limit.h"
#include "shim/calls/name/name_change.h"
#include "shim/fd/fd_table.h"
#include "shim/fd/materialize.h"
#include "shim/path/path_filter.h"
#include "shim/path/path_of_fd.h"
#include "shim/process/attachment.h"
#include "shim/process/c_result.h"

namespace cube::shim {

namespace sys = base::sys;

namespace {

// Whether the open has created the file of this stat. `made_after_ns` alone does not prove that:
// the kernel may have remembered that the path does not exist although another node had created it.
bool is_new(const cache::FileStat& stat, std::uint64_t made_after_ns) {
  return made_after_ns != 0 && stat.size == 0 && stat.links <= 1;
}

}  // namespace

void note_writer(int fd, std::string_view key, bool close_on_exec, std::uint64_t made_after_ns) {
  const KeepErrno keep;
  const auto stat = cache::stat_fd(fd);
  if (!stat || !stat->is_regular()) return;
  auto* const cache =
      !key.empty() ? attachment::attached_cache() : attachment::cache_of_device(stat->device());
  if (cache == nullptr) return;
  // The inode of a new file may have belonged to another file, which is gone.
  if (is_new(*stat, made_after_ns)) cache->changes().inode_reused(*stat, made_after_ns);
  OpenFileRef file = g_fds.is_within(fd) ? open_files::make() : OpenFileRef();
  // Without a row, the last close would go unnoticed. So the file counts as being written until
  // this process ends.
  if (file)
    cache->changes().writing_begins(key, *stat);
  else
    cache->changes().child_writes(key, *stat);
  // The file may also be cached under its real path.
  char real_path[PATH_MAX];
  const std::string_view real = path_of_fd(fd, real_path);
  cache->changes().bytes_changed(real, *stat);
  // The program may have used a link, and memory may hold a negative entry for the real path.
  cache->corrections().learn(real, {.kinds = cache::Told::k_other});
  if (file) {
    file->kind = OpenFile::Kind::writer;
    file->written = *stat;
    g_fds.set(fd, RowKind::writer, std::move(file), close_on_exec);
  }
  // Reads through the program's other fds of the file must return the written bytes, even if the
  // file is unlinked later.
  materialize_other_names(*stat, "open");
}

void note_vforked_writer(int fd, std::uint64_t made_after_ns) {
  auto* const cache = attachment::attached_cache();
  if (cache == nullptr) return;
  const KeepErrno keep;
  const auto stat = cache::stat_fd(fd);
  if (!stat || !stat->is_regular() || !cache->changes().knows_device(stat->device())) return;
  if (is_new(*stat, made_after_ns)) cache->changes().inode_reused(*stat, made_after_ns);
  cache->changes().child_writes({}, *stat);
  char real_path[PATH_MAX];
  cache->changes().bytes_changed(path_of_fd(fd, real_path), *stat);
}

int note_foreign_fd(int fd) {
  if (fd < 0 || !process::tells() || !process::owns_table()) return fd;
  g_fds.forget(fd);
  const KeepErrno keep;
  const long flags = sys::fcntl(fd, F_GETFL, 0);
  if (sys::failed(flags) || (flags & O_PATH) != 0 || (flags & O_ACCMODE) == O_RDONLY) return fd;
  note_writer(fd, {}, /*close_on_exec=*/(sys::fcntl(fd, F_GETFD, 0) & FD_CLOEXEC) != 0);
  return fd;
}

void note_inherited_fd(int fd) {
  const long flags = sys::fcntl(fd, F_GETFL, 0);
  if (sys::failed(flags) || (flags & O_ACCMODE) == O_RDONLY) return;
  char path[PATH_MAX];
  path[0] = '\0';
  const long length = read_path_of_fd(fd, path);
  if (length <= 0 || length == PATH_MAX || path[0] != '/') return;
  path[length] = '\0';
  if (!path_filter::passes_by(path)) note_foreign_fd(fd);
}

void note_foreign_writer(int dir, const char* path, std::uint64_t made_after_ns) {
  if (!process::tells() || !process::owns_table()) return;
  const KeepErrno keep;
  CoveredPath covered;
  const bool is_covered_here =
      path_filter::covers_served(dir, path, covered, path_filter::Care::thorough);
  const auto stat = cache::stat_path(dir, path, 0);
  if (!stat || !stat->is_regular()) return;
  auto* const cache =
      is_covered_here ? attachment::cache() : attachment::cache_of_device(stat->device());
  if (cache == nullptr) return;
  if (made_after_ns != 0) cache->changes().inode_reused(*stat, made_after_ns);
  cache->changes().child_writes(is_covered_here ? covered.key() : std::string_view(), *stat);
  const long opened = base::open_path_only(dir, path);
  if (sys::failed(opened)) return cache->changes().all_changed();
  const base::UniqueFd fd(static_cast<int>(opened));
  NameChange::note_entry_of(fd.get(), dir, path);
  char real_path[PATH_MAX];
  cache->changes().bytes_changed(path_of_fd(fd.get(), real_path), *stat);
}

}  // namespace cube::shim
