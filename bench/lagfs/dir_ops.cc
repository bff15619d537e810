// Operations on open directories. The handle of an open directory is a stream of the source's
// directory.
#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "control.h"
#include "operations.h"

namespace cube::lagfs::operations {
namespace {

// Needs no lock, because the kernel sends the readdirs of one open directory one after another.
struct Directory {
  DIR* stream;
  off_t offset = 0;           // the position of the stream
  dirent* pending = nullptr;  // read from the stream, but did not fit into the reply
};

Directory& directory_of(const fuse_file_info* file) {
  return *reinterpret_cast<Directory*>(file->fh);
}

// Returns the next entry without consuming it.
dirent* peek(Directory& directory) {
  if (directory.pending == nullptr) directory.pending = ::readdir(directory.stream);
  return directory.pending;
}

void take(Directory& directory) {
  directory.offset = directory.pending->d_off;
  directory.pending = nullptr;
}

mode_t type_of(const dirent& item) { return static_cast<mode_t>(DTTOIF(item.d_type)); }

bool is_dot(const char* name) { return strcmp(name, ".") == 0 || strcmp(name, "..") == 0; }

struct Listing {
  std::vector<char> buffer;
  size_t used = 0;
  std::vector<fuse_ino_t> acquired;  // lookups that the reply passes to the kernel
};

// Appends one entry. Returns false if there is no room.
bool append(fuse_req_t request, const Node& node, const dirent& item, bool plus, Listing& listing) {
  char* to = listing.buffer.data() + listing.used;
  const size_t room = listing.buffer.size() - listing.used;
  size_t needed = 0;
  if (plus) {
    fuse_entry_param entry{};
    entry.attr.st_ino = item.d_ino;
    entry.attr.st_mode = type_of(item);
    const bool looked_up =
        !is_dot(item.d_name) && find_entry(origin_of(request), node, item.d_name, entry) == 0;
    needed = fuse_add_direntry_plus(request, to, room, item.d_name, &entry, item.d_off);
    if (looked_up && needed > room) origin_of(request).nodes.release(entry.ino, 1);
    if (looked_up && needed <= room) listing.acquired.push_back(entry.ino);
  } else {
    struct stat st {};
    st.st_ino = item.d_ino;
    st.st_mode = type_of(item);
    needed = fuse_add_direntry(request, to, room, item.d_name, &st, item.d_off);
  }
  if (needed > room) return false;
  listing.used += needed;
  return true;
}

void list(fuse_req_t request, fuse_ino_t id, size_t size, off_t offset, const fuse_file_info* file,
          bool plus) {
  const Node& node = node_at(request, id);
  Call call(request, plus ? Op::readdirplus : Op::readdir, false);
  if (call.refused()) return;
  Directory& directory = directory_of(file);
  if (offset != directory.offset) {
    ::seekdir(directory.stream, offset);
    directory.offset = offset;
    directory.pending = nullptr;
  }
  Listing listing;
  listing.buffer.resize(size);
  errno = 0;
  while (const dirent* item = peek(directory)) {
    const bool hidden = control::is_control_name(id, item->d_name);
    if (!hidden && !append(request, node, *item, plus, listing)) break;
    take(directory);
    errno = 0;
  }
  const int error = directory.pending == nullptr ? errno : 0;
  if (error != 0 && listing.used == 0) return call.finish(error);
  call.wait();
  if (fuse_reply_buf(request, listing.buffer.data(), listing.used) != 0) {
    for (const fuse_ino_t acquired : listing.acquired)
      origin_of(request).nodes.release(acquired, 1);
  }
}

}  // namespace

void opendir(fuse_req_t request, fuse_ino_t id, fuse_file_info* file) {
  Call call(request, Op::opendir, false);
  if (call.refused()) return;
  const int fd = ::openat(node_at(request, id).fd(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* stream = fd < 0 ? nullptr : ::fdopendir(fd);
  if (stream == nullptr) {
    const int error = errno;
    if (fd >= 0) ::close(fd);
    return call.finish(error);
  }
  auto* directory = new Directory{stream};
  file->fh = reinterpret_cast<std::uint64_t>(directory);
  call.wait();
  if (fuse_reply_open(request, file) != 0) {
    ::closedir(stream);
    delete directory;
  }
}

void readdir(fuse_req_t request, fuse_ino_t id, size_t size, off_t offset, fuse_file_info* file) {
  list(request, id, size, offset, file, false);
}

void readdirplus(fuse_req_t request, fuse_ino_t id, size_t size, off_t offset,
                 fuse_file_info* file) {
  list(request, id, size, offset, file, true);
}

void releasedir(fuse_req_t request, fuse_ino_t, fuse_file_info* file) {
  Call call(request, Op::releasedir, false);
  Directory& directory = directory_of(file);
  ::closedir(directory.stream);
  delete &directory;
  if (call.refused()) return;
  call.finish(0);
}

void fsyncdir(fuse_req_t request, fuse_ino_t, int data_only, fuse_file_info* file) {
  Call call(request, Op::fsyncdir, false);
  if (call.refused()) return;
  const int fd = ::dirfd(directory_of(file).stream);
  call.finish(errno_if((data_only != 0 ? ::fdatasync(fd) : ::fsync(fd)) != 0));
}

}  // namespace cube::lagfs::operations
