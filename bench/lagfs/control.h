// The virtual directory `.lagfs` in the root of the mount. `counters`, `counters.json` and `held`
// can be read, `script` and `reset` written.
//
// Operations on `.lagfs` are neither counted nor delayed, and its files are never cached. A read
// from the start of a file takes a new snapshot. The directory is found only by its name: a listing
// of the root does not show it. It hides a directory of this name in the source.
//
// Thread safety: all functions may be called from any worker.
#pragma once

#include <fuse_lowlevel.h>

#include <cstring>

namespace cube::lagfs::control {

inline constexpr const char* k_directory_name = ".lagfs";

// All other node ids are addresses, so small numbers are free.
enum Id : fuse_ino_t { k_directory = 2, k_counters, k_counters_json, k_held, k_script, k_reset };

inline bool is_control(fuse_ino_t id) { return id >= k_directory && id <= k_reset; }
// Returns true if this is the name of the directory, or a name in it.
inline bool is_control_name(fuse_ino_t parent, const char* name) {
  return is_control(parent) || (parent == FUSE_ROOT_ID && strcmp(name, k_directory_name) == 0);
}

// Replies with the entry of `name` in the root or in the directory, or with ENOENT if there is
// none.
void lookup(fuse_req_t request, fuse_ino_t parent, const char* name);
void getattr(fuse_req_t request, fuse_ino_t id, fuse_file_info* file);
void setattr(fuse_req_t request, fuse_ino_t id, struct stat* attributes, int to_set,
             fuse_file_info* file);
void open(fuse_req_t request, fuse_ino_t id, fuse_file_info* file);
void read(fuse_req_t request, fuse_ino_t id, size_t size, off_t offset, fuse_file_info* file);
void write(fuse_req_t request, fuse_ino_t id, const char* data, size_t size, off_t offset,
           fuse_file_info* file);
void flush(fuse_req_t request, fuse_ino_t id, fuse_file_info* file);
void release(fuse_req_t request, fuse_ino_t id, fuse_file_info* file);
void opendir(fuse_req_t request, fuse_ino_t id, fuse_file_info* file);
void readdir(fuse_req_t request, fuse_ino_t id, size_t size, off_t offset, fuse_file_info* file);
void releasedir(fuse_req_t request, fuse_ino_t id, fuse_file_info* file);

}  // namespace cube::lagfs::control
