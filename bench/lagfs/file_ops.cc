// Operations on open files. The handle of an open file is an fd of the source's file.
#include <fcntl.h>
#include <unistd.h>

#include <memory>

#include "operations.h"

namespace cube::lagfs::operations {
namespace {

// O_DIRECT requires an alignment that our buffers do not have, and concerns only the client's
// cache. O_NOFOLLOW would refuse the path through /proc; the kernel has already resolved the links.
int source_flags(int flags) { return (flags & ~(O_DIRECT | O_NOFOLLOW)) | O_CLOEXEC; }

void set_caching(const Options& options, fuse_file_info& file) {
  file.direct_io = options.direct ? 1 : 0;
  file.keep_cache = options.keep_cache ? 1 : 0;
}

// Returns the worker's buffer, which is as large as the largest read that the worker has served.
char* read_buffer(size_t size) {
  thread_local std::unique_ptr<char[]> buffer;
  thread_local size_t capacity = 0;
  if (size > capacity) {
    buffer = std::make_unique_for_overwrite<char[]>(size);
    capacity = size;
  }
  return buffer.get();
}

// Reads fewer bytes than `size` only at the end of the file, because the kernel takes a short reply
// for the end. Returns the number of bytes, or -1.
ssize_t read_fully(int fd, char* to, size_t size, off_t offset) {
  size_t done = 0;
  while (done < size) {
    const ssize_t got = ::pread(fd, to + done, size - done, offset + static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && done == 0) return -1;
    if (got <= 0) break;
    done += static_cast<size_t>(got);
  }
  return static_cast<ssize_t>(done);
}

}  // namespace

void open(fuse_req_t request, fuse_ino_t id, fuse_file_info* file) {
  const Node& node = node_at(request, id);
  Call call(request, Op::open, node.is_data_file());
  if (call.refused()) return;
  const int fd = ::open(path_of(node).c_str(), source_flags(file->flags));
  if (fd < 0) return call.finish(errno);
  file->fh = static_cast<std::uint64_t>(fd);
  set_caching(origin_of(request).options, *file);
  call.wait();
  // The client was interrupted, and the kernel will send no RELEASE.
  if (fuse_reply_open(request, file) != 0) ::close(fd);
}

void create(fuse_req_t request, fuse_ino_t parent_id, const char* name, mode_t mode,
            fuse_file_info* file) {
  if (refuse_control_name(request, parent_id, name)) return;
  Origin& origin = origin_of(request);
  const Node& parent = node_at(request, parent_id);
  Call call(request, Op::create, true);
  if (call.refused()) return;

  int fd = -1;
  {
    const ActingAsClient client(request);
    fd = ::openat(parent.fd(), name, source_flags(file->flags) | O_CREAT | O_NOFOLLOW, mode);
  }
  if (fd < 0) return call.finish(errno);
  fuse_entry_param entry{};
  if (const int error = find_entry(origin, parent, name, entry)) {
    ::close(fd);
    return call.finish(error);
  }
  file->fh = static_cast<std::uint64_t>(fd);
  set_caching(origin.options, *file);
  call.wait();
  if (fuse_reply_create(request, &entry, file) != 0) {
    ::close(fd);
    origin.nodes.release(entry.ino, 1);
  }
}

void read(fuse_req_t request, fuse_ino_t id, size_t size, off_t offset, fuse_file_info* file) {
  Call call(request, Op::read, node_at(request, id).is_data_file());
  if (call.refused()) return;
  char* buffer = read_buffer(size);
  const ssize_t got = read_fully(fd_of(file), buffer, size, offset);
  if (got < 0) return call.finish(errno);
  const size_t bytes = origin_of(request).faults.shorten(static_cast<size_t>(got));
  call.wait(bytes);
  fuse_reply_buf(request, buffer, bytes);
}

void write(fuse_req_t request, fuse_ino_t id, const char* data, size_t size, off_t offset,
           fuse_file_info* file) {
  Call call(request, Op::write, node_at(request, id).is_data_file());
  if (call.refused()) return;
  const ssize_t written = ::pwrite(fd_of(file), data, size, offset);
  if (written < 0) return call.finish(errno);
  call.wait(static_cast<std::uint64_t>(written));
  fuse_reply_write(request, static_cast<size_t>(written));
}

void flush(fuse_req_t request, fuse_ino_t id, fuse_file_info* file) {
  Call call(request, Op::flush, node_at(request, id).is_data_file());
  drop_locks(id, file->lock_owner);
  if (call.refused()) return;
  // Closes a duplicate: this reports the same error as a close of the source, but leaves the file
  // open.
  const int duplicate = ::fcntl(fd_of(file), F_DUPFD_CLOEXEC, 0);
  call.finish(errno_if(duplicate < 0 || ::close(duplicate) != 0));
}

void release(fuse_req_t request, fuse_ino_t id, fuse_file_info* file) {
  Call call(request, Op::release, node_at(request, id).is_data_file());
  ::close(fd_of(file));  // even if a rule refuses the reply, because RELEASE is not sent again
  if (call.refused()) return;
  call.finish(0);
}

void fsync(fuse_req_t request, fuse_ino_t id, int data_only, fuse_file_info* file) {
  Call call(request, Op::fsync, node_at(request, id).is_data_file());
  if (call.refused()) return;
  call.finish(errno_if((data_only != 0 ? ::fdatasync(fd_of(file)) : ::fsync(fd_of(file))) != 0));
}

void fallocate(fuse_req_t request, fuse_ino_t id, int mode, off_t offset, off_t length,
               fuse_file_info* file) {
  Call call(request, Op::fallocate, node_at(request, id).is_data_file());
  if (call.refused()) return;
  call.finish(errno_if(::fallocate(fd_of(file), mode, offset, length) != 0));
}

void lseek(fuse_req_t request, fuse_ino_t id, off_t offset, int whence, fuse_file_info* file) {
  Call call(request, Op::lseek, node_at(request, id).is_data_file());
  if (call.refused()) return;
  const off_t found = ::lseek(fd_of(file), offset, whence);
  if (found < 0) return call.finish(errno);
  call.wait();
  fuse_reply_lseek(request, found);
}

void copy_file_range(fuse_req_t request, fuse_ino_t id_in, off_t offset_in, fuse_file_info* in,
                     fuse_ino_t, off_t offset_out, fuse_file_info* out, size_t length, int flags) {
  Call call(request, Op::copy_file_range, node_at(request, id_in).is_data_file());
  if (call.refused()) return;
  const ssize_t copied = ::copy_file_range(fd_of(in), &offset_in, fd_of(out), &offset_out, length,
                                           static_cast<unsigned>(flags));
  if (copied < 0) return call.finish(errno);
  call.wait();
  fuse_reply_write(request, static_cast<size_t>(copied));
}

void ioctl(fuse_req_t request, fuse_ino_t id, unsigned, void*, fuse_file_info*, unsigned,
           const void*, size_t, size_t) {
  // No ioctl is supported, but the kernel sends each ioctl (isatty() makes one), so each is
  // counted.
  Call call(request, Op::ioctl, node_at(request, id).is_data_file());
  if (call.refused()) return;
  call.finish(ENOTTY);
}

}  // namespace cube::lagfs::operations
