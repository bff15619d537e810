#include "prefetch/object/copy_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "cache/base/memory/memory_limits.h"
#include "cache/base/process/proc_fd_name.h"
#include "cache/base/sys.h"
#include "cache/bucket/copy_socket.h"
#include "cache/bucket/copy_stat.h"

namespace cube::prefetch {
namespace {

constexpr std::uint64_t k_most_in_memory = 256 << 20;

}  // namespace

CopyFile::CopyFile(std::string disk_dir, StatOf stat_of, std::function<void()> note_progress,
                   Present present)
    : disk_dir_(std::move(disk_dir)),
      stat_of_(std::move(stat_of)),
      note_progress_(std::move(note_progress)),
      present_(std::move(present)) {}

CopyFile::~CopyFile() { unmap(); }

void CopyFile::unmap() {
  if (at_ != nullptr) munmap(std::exchange(at_, nullptr), head_.size);
}

int CopyFile::make_file(std::uint64_t size) {
  const cache::CopyName name(stat_of_(head_));
  file_.reset();
  if (size > k_most_in_memory && !disk_dir_.empty()) {
    file_ =
        base::UniqueFd(open(disk_dir_.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR));
    if (file_) name.write_to(file_.get());
  }
  if (!file_) {
    // Refuses large files early: if a memfd's memory cannot be allocated, a store to it raises
    // SIGBUS or starts the OOM killer.
    if (size > base::available_memory() / 2) return ENOSPC;
    const long made = base::sys::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (base::sys::failed(made)) return static_cast<int>(-made);
    file_ = base::UniqueFd(static_cast<int>(made));
  }
  if (!file_) return errno;
  if (size == 0) return 0;
  if (const int error = posix_fallocate(file_.get(), 0, static_cast<off_t>(size)); error != 0)
    return error;
  void* const at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
  if (at == MAP_FAILED) return errno;
  at_ = static_cast<std::byte*>(at);
  return 0;
}

int CopyFile::begin(const s3::Outcome& first) {
  unmap();
  head_.size = first.size;
  head_.etag = first.etag;
  head_.modified = first.modified;
  return make_file(first.size);
}

std::byte* CopyFile::room(std::uint64_t first, std::size_t /*bytes*/) { return at_ + first; }

bool CopyFile::has(std::uint64_t first, std::size_t bytes) {
  return present_ && present_(at_ + first, first, bytes);
}

int CopyFile::take(std::uint64_t /*first*/, std::size_t /*bytes*/) {
  note_progress_();
  return 0;
}

base::UniqueFd CopyFile::finish() {
  unmap();
  cache::seal_copy(file_.get(), stat_of_(head_));
  // Returns a read-only fd, because a file that is open for writing cannot be executed.
  const base::ProcFdName name(file_.get());
  base::UniqueFd read_only(open(name.c_str(), O_RDONLY | O_CLOEXEC));
  return read_only ? std::move(read_only) : std::move(file_);
}

}  // namespace cube::prefetch
