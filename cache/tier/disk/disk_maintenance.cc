#include "cache/tier/disk/disk_maintenance.h"

#include <sys/file.h>

#include <cerrno>

#include "cache/tier/disk/segment_file.h"

namespace cube::cache {

namespace sys = base::sys;

namespace {

// Whether the writer of a segment file holds the file's lock. This function takes the file's lock
// for a moment. The directory's lock keeps it from disturbing a process that creates a segment
// file.
bool is_being_written(const DiskDirectory& directory, int fd) {
  const auto lock = directory.lock(DiskDirectory::k_wait_for_lock_ms);
  if (!lock) return true;
  if (!try_lock(fd, LOCK_EX)) return true;
  try_lock(fd, LOCK_UN);
  return false;
}

// The caller must hold the directory's lock. Otherwise a process that opens the index at the same
// time could take this function's lock for that of a job.
bool index_is_in_use(const DiskDirectory& directory) {
  const auto fd =
      base::open_fd(directory.path_of("index").text, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
  return fd && !try_lock(fd->get(), LOCK_EX);
}

}  // namespace

base::Result<DiskSurvey> survey_disk(const DiskDirectory& directory) {
  const auto numbers = directory.list_segments();
  if (!numbers) return base::fail(numbers.error().value);
  DiskSurvey survey;
  for (const std::uint32_t number : *numbers) {
    const auto fd = directory.open_segment(number, O_RDONLY);
    if (!fd && fd.error().value == ENOENT) continue;  // evicted just now
    ++survey.segments;
    struct ::stat st {};
    if (!fd || sys::failed(sys::fstat(fd->get(), &st))) {
      survey.unreadable.push_back(number);
      continue;
    }
    survey.bytes += static_cast<std::uint64_t>(st.st_blocks) * 512;
    const auto contents = read_footer(fd->get(), number);
    if (contents) {
      survey.records += contents->rows.size();
    } else if (contents.error().value != EBADMSG) {
      survey.unreadable.push_back(number);
    } else if (is_being_written(directory, fd->get())) {
      ++survey.being_written;
    } else {
      survey.no_footer.push_back(number);
    }
  }
  return survey;
}

bool is_in_use(const DiskDirectory& directory) {
  const auto lock = directory.lock(DiskDirectory::k_wait_for_lock_ms);
  return lock ? index_is_in_use(directory) : lock.error().value == EBUSY;
}

base::Result<DiskRemoved> remove_disk(const DiskDirectory& directory, bool force) {
  const auto lock = directory.lock(DiskDirectory::k_wait_for_lock_ms);
  // A directory without a version file cannot be locked, and no job uses it.
  const bool is_busy = lock ? index_is_in_use(directory) : lock.error().value == EBUSY;
  if (is_busy && !force) return base::fail(EBUSY);
  const auto numbers = directory.list_segments();
  if (!numbers) return base::fail(numbers.error().value);
  DiskRemoved removed;
  const auto remove = [](const DiskDirectory::Path& path) {
    const long error = sys::unlink(path.text);
    return sys::failed(error) && error != -ENOENT ? static_cast<int>(-error) : 0;
  };
  for (const std::uint32_t number : *numbers) {
    const DiskDirectory::Path path = directory.path_of_segment(number);
    struct ::stat st {};
    if (sys::failed(sys::fstatat(AT_FDCWD, path.text, &st, AT_SYMLINK_NOFOLLOW))) continue;
    if (const int error = remove(path)) return base::fail(error);
    ++removed.segments;
    removed.bytes += static_cast<std::uint64_t>(st.st_blocks) * 512;
  }
  // Removes the version file last, so that the directory can still be recognized after an error.
  for (const char* const name : {"index", "index.new", "version"}) {
    const DiskDirectory::Path path = directory.path_of(name);
    struct ::stat st {};
    if (!sys::failed(sys::fstatat(AT_FDCWD, path.text, &st, AT_SYMLINK_NOFOLLOW)))
      removed.bytes += static_cast<std::uint64_t>(st.st_blocks) * 512;
    if (const int error = remove(path)) return base::fail(error);
  }
  const long gone =
      sys::raw(SYS_unlinkat, AT_FDCWD, sys::arg(directory.path().c_str()), AT_REMOVEDIR);
  removed.has_others = gone == -ENOTEMPTY;
  if (sys::failed(gone) && !removed.has_others) return base::fail(static_cast<int>(-gone));
  return removed;
}

}  // namespace cube::cache
