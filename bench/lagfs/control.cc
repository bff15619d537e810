#include "control.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <string>
#include <vector>

#include "origin.h"

namespace cube::lagfs::control {
namespace {

struct File {
  const char* name;
  Id id;
};
constexpr File k_files[] = {{"counters", k_counters},
                            {"counters.json", k_counters_json},
                            {"held", k_held},
                            {"script", k_script},
                            {"reset", k_reset}};
constexpr double k_timeout = 3600;  // for attributes that never change

bool is_written(fuse_ino_t id) { return id == k_reset || id == k_script; }

// The snapshot that an open file shows.
struct Snapshot {
  std::mutex mutex;
  std::string text;
};

Snapshot* snapshot_of(const fuse_file_info* file) { return reinterpret_cast<Snapshot*>(file->fh); }

struct stat attributes_of(fuse_ino_t id) {
  struct stat st {};
  // The inode numbers of `.lagfs` are far larger than any of a source.
  st.st_ino = ~ino_t{0} - id;
  st.st_mode = id == k_directory ? S_IFDIR | 0755
               : is_written(id)  ? S_IFREG | 0222
                                 : S_IFREG | 0444;
  st.st_nlink = id == k_directory ? 2 : 1;
  return st;
}

void reply_attributes(fuse_req_t request, fuse_ino_t id) {
  const struct stat st = attributes_of(id);
  fuse_reply_attr(request, &st, k_timeout);
}

}  // namespace

void lookup(fuse_req_t request, fuse_ino_t parent, const char* name) {
  fuse_entry_param entry{};
  if (parent == FUSE_ROOT_ID) entry.ino = k_directory;
  for (const File& file : k_files) {
    if (parent == k_directory && strcmp(name, file.name) == 0) entry.ino = file.id;
  }
  if (entry.ino == 0) {
    fuse_reply_err(request, ENOENT);
    return;
  }
  entry.attr = attributes_of(entry.ino);
  entry.attr_timeout = entry.entry_timeout = k_timeout;
  fuse_reply_entry(request, &entry);
}

void getattr(fuse_req_t request, fuse_ino_t id, fuse_file_info*) { reply_attributes(request, id); }

// `> .lagfs/reset` truncates the file; no action is needed.
void setattr(fuse_req_t request, fuse_ino_t id, struct stat*, int, fuse_file_info*) {
  reply_attributes(request, id);
}

void open(fuse_req_t request, fuse_ino_t id, fuse_file_info* file) {
  const int access = file->flags & O_ACCMODE;
  if (id == k_directory || (is_written(id) ? access == O_RDONLY : access != O_RDONLY)) {
    fuse_reply_err(request, EACCES);
    return;
  }
  auto* snapshot = new Snapshot;
  file->fh = reinterpret_cast<std::uint64_t>(snapshot);
  file->direct_io = 1;
  if (fuse_reply_open(request, file) != 0) delete snapshot;
}

void read(fuse_req_t request, fuse_ino_t id, size_t size, off_t offset, fuse_file_info* file) {
  Origin& origin = origin_of(request);
  std::string part;
  {
    Snapshot& snapshot = *snapshot_of(file);
    const std::lock_guard lock(snapshot.mutex);
    if (offset == 0 && id == k_held) {
      Workers::mark_counted();
      snapshot.text = std::to_string(origin.script.wait_for_held(
                          [&] { return fuse_req_interrupted(request) != 0; })) +
                      "\n";
    } else if (offset == 0) {
      origin.workers.settle();
      snapshot.text = id == k_counters_json ? origin.counters.json() : origin.counters.text();
    }
    if (static_cast<size_t>(offset) < snapshot.text.size())
      part = snapshot.text.substr(static_cast<size_t>(offset), size);
  }
  // The snapshot must not be touched after the reply, because the client may then close the file.
  fuse_reply_buf(request, part.data(), part.size());
}

void write(fuse_req_t request, fuse_ino_t id, const char* data, size_t size, off_t,
           fuse_file_info*) {
  Origin& origin = origin_of(request);
  if (id == k_script) {
    if (!origin.script.write({data, size})) {
      fuse_reply_err(request, EINVAL);
    } else {
      fuse_reply_write(request, size);
    }
    return;
  }
  // Settles first, because a RELEASE from before the reset must not be counted after it.
  origin.workers.settle();
  origin.counters.reset();
  fuse_reply_write(request, size);
}

void flush(fuse_req_t request, fuse_ino_t, fuse_file_info*) { fuse_reply_err(request, 0); }

void release(fuse_req_t request, fuse_ino_t, fuse_file_info* file) {
  delete snapshot_of(file);
  fuse_reply_err(request, 0);
}

void opendir(fuse_req_t request, fuse_ino_t, fuse_file_info* file) {
  fuse_reply_open(request, file);
}

void readdir(fuse_req_t request, fuse_ino_t, size_t size, off_t offset, fuse_file_info*) {
  std::vector<char> buffer(size);
  size_t used = 0;
  for (auto i = static_cast<size_t>(offset); i < std::size(k_files); ++i) {
    const struct stat st = attributes_of(k_files[i].id);
    const size_t needed = fuse_add_direntry(request, buffer.data() + used, size - used,
                                            k_files[i].name, &st, static_cast<off_t>(i + 1));
    if (needed > size - used) break;
    used += needed;
  }
  fuse_reply_buf(request, buffer.data(), used);
}

void releasedir(fuse_req_t request, fuse_ino_t, fuse_file_info*) { fuse_reply_err(request, 0); }

}  // namespace cube::lagfs::control
