#include "cache/pack/make/pack_copy.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "cache/base/memory/held.h"
#include "cache/base/process/lifted_fd_limit.h"
#include "cache/base/process/proc_fd_name.h"
#include "cache/pack/pack_io.h"

namespace cube::cache {
namespace {

namespace sys = base::sys;

constexpr std::size_t k_copy_part = 512 << 10;

// A file in memory. Copying may wait for the pack; if a jump leaves the wait, the file is closed.
class CopyUnderWay {
 public:
  CopyUnderWay() {
    // Before memfd_create, closes fds that earlier jumps have left open, so that the program gets
    // the lowest free fd.
    base::Held::give_back_left(this);
    made_ = sys::memfd_create("cubeshim", MFD_CLOEXEC);
    if (sys::failed(made_)) return;
    fd_.reset(static_cast<int>(made_));
    is_noted_ = base::Held::note(this, close, static_cast<std::uintptr_t>(made_), 0);
  }
  CopyUnderWay(const CopyUnderWay&) = delete;
  CopyUnderWay& operator=(const CopyUnderWay&) = delete;
  ~CopyUnderWay() { release(); }

  // 0 or -errno.
  long error() const { return sys::failed(made_) ? made_ : 0; }
  int get() const { return fd_.get(); }
  // Empty: the file has been closed.
  base::UniqueFd release() {
    if (fd_ && is_noted_ && !base::Held::let_go(this, static_cast<std::uintptr_t>(fd_.get())))
      fd_.release();
    return std::move(fd_);
  }

 private:
  static void close(std::uintptr_t fd, std::size_t /*size*/) { sys::close(static_cast<int>(fd)); }
  long made_ = -1;
  base::UniqueFd fd_;
  bool is_noted_ = false;
};

base::Result<void> write_parts(const PackMount& mount, const PackEntry& entry, int file) {
  base::Scratch scratch;
  std::byte* const room = scratch.reserve(k_copy_part);
  if (room == nullptr) return base::fail(ENOMEM);
  base::Hasher hasher;
  for (std::uint64_t at = 0; at < entry.data_size;) {
    const auto got = mount.reader().read_part(entry, at, room, k_copy_part);
    if (!got) return base::fail(got.error().value == EBADMSG ? EIO : got.error().value);
    hasher.add(room, *got);
    const auto written = write_at(file, room, *got, at);
    if (!written) return written;
    at += *got;
  }
  if (hasher.value() != entry.data_hash) return base::fail(EIO);
  return {};
}

}  // namespace

base::Result<base::UniqueFd> copy_of_packed(const PackMount& mount,
                                            const PackMount::Content& content, int flags) {
  CopyUnderWay file;
  if (const long error = file.error(); error != 0) return base::fail(static_cast<int>(-error));
  const auto written = content.data != nullptr
                           ? write_at(file.get(), content.data, content.stat.size, 0)
                           : write_parts(mount, content.entry, file.get());
  if (!written) return base::fail(written.error().value);
  const auto& time = content.stat.modified;
  const struct ::timespec times[2] = {{time.seconds, static_cast<long>(time.nanoseconds)},
                                      {time.seconds, static_cast<long>(time.nanoseconds)}};
  sys::raw(SYS_utimensat, file.get(), 0, sys::arg(times), 0);
  constexpr int k_kept = O_PATH | O_APPEND | O_NONBLOCK | O_SYNC;
  const base::ProcFdName name(file.get(), base::ProcFdName::Table::thread);
  const auto open = [&] {
    return sys::open(name.c_str(), (flags & k_kept) | O_RDONLY | O_CLOEXEC);
  };
  const base::UniqueFd shown(static_cast<int>(base::within_lifted_fd_limit(open)));
  if (!shown) return base::fail(-shown.get());
  sys::raw(SYS_fchmod, file.get(), content.stat.mode & 07777);
  // `file` is the lower of the two fds, which an open by the kernel would have returned.
  const long over = sys::dup3(shown.get(), file.get(), flags & O_CLOEXEC);
  if (sys::failed(over)) return base::fail(static_cast<int>(-over));
  base::UniqueFd copy = file.release();
  if (!copy) return base::fail(EBUSY);
  return copy;
}

base::Result<base::UniqueFd> open_copy_of_packed(const PackMount& mount, std::string_view path,
                                                 int flags) {
  base::Scratch scratch;
  PackMount::Content content;
  // Does not read the data of a file larger than k_copy_part. Such a file is copied in parts.
  const auto read = mount.read(path, k_copy_part, scratch, content);
  if (!read) return base::fail(read.error().value);
  return copy_of_packed(mount, content, flags);
}

}  // namespace cube::cache
