// The FUSE operations, which execute each request at the source. The files that implement them
// share this header; the rest of lagfs needs only operation_table().
//
// The operations have the names of fuse_lowlevel.h. Requests for the virtual directory never reach
// these functions (see Routing in operations.cc).
//
// Thread safety: several workers may call any of these functions at the same time; `request`
// belongs to one worker.
#pragma once

#include <fuse_lowlevel.h>
#include <sys/stat.h>

#include <cerrno>
#include <string>

#include "call.h"

namespace cube::lagfs {

const fuse_lowlevel_ops& operation_table();

namespace operations {

// --- shared by the implementations

inline int errno_if(bool failed) { return failed ? errno : 0; }
inline Node& node_at(fuse_req_t request, fuse_ino_t id) { return origin_of(request).nodes.at(id); }
inline int fd_of(const fuse_file_info* file) { return static_cast<int>(file->fh); }

// Returns a path to an inode that does not depend on the inode's names. Most calls refuse an O_PATH
// fd but accept this path.
std::string path_of(const Node& node);
// Returns true if `name` in `parent` is a regular file now.
bool names_data_file(const Node& parent, const char* name);
// Finds `name` in `parent`, counts one more lookup for the kernel, and fills `entry`. Returns 0 or
// an errno.
int find_entry(Origin& origin, const Node& parent, const char* name, fuse_entry_param& entry);
// Refuses to make or remove a name of the virtual directory. Returns true if it has replied.
bool refuse_control_name(fuse_req_t request, fuse_ino_t parent, const char* name);

// As long as an object of this class exists, files that this thread creates belong to the client.
class ActingAsClient {
 public:
  explicit ActingAsClient(fuse_req_t request);
  ~ActingAsClient();
  ActingAsClient(const ActingAsClient&) = delete;
  ActingAsClient& operator=(const ActingAsClient&) = delete;

 private:
  bool changed_;
};

// --- name_ops.cc: names in a directory

void lookup(fuse_req_t request, fuse_ino_t parent, const char* name);
void forget(fuse_req_t request, fuse_ino_t id, std::uint64_t lookups);
void forget_multi(fuse_req_t request, size_t count, fuse_forget_data* forgets);
void mknod(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode, dev_t device);
void mkdir(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode);
void symlink(fuse_req_t request, const char* target, fuse_ino_t parent, const char* name);
void link(fuse_req_t request, fuse_ino_t id, fuse_ino_t new_parent, const char* new_name);
void unlink(fuse_req_t request, fuse_ino_t parent, const char* name);
void rmdir(fuse_req_t request, fuse_ino_t parent, const char* name);
void rename(fuse_req_t request, fuse_ino_t parent, const char* name, fuse_ino_t new_parent,
            const char* new_name, unsigned flags);

// --- attr_ops.cc: the attributes of an inode

void getattr(fuse_req_t request, fuse_ino_t id, fuse_file_info* file);
void setattr(fuse_req_t request, fuse_ino_t id, struct stat* attributes, int to_set,
             fuse_file_info* file);
void readlink(fuse_req_t request, fuse_ino_t id);
void statfs(fuse_req_t request, fuse_ino_t id);
void getxattr(fuse_req_t request, fuse_ino_t id, const char* name, size_t size);
void setxattr(fuse_req_t request, fuse_ino_t id, const char* name, const char* value, size_t size,
              int flags);
void listxattr(fuse_req_t request, fuse_ino_t id, size_t size);
void removexattr(fuse_req_t request, fuse_ino_t id, const char* name);

// --- file_ops.cc: open files

void open(fuse_req_t request, fuse_ino_t id, fuse_file_info* file);
void create(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode,
            fuse_file_info* file);
void read(fuse_req_t request, fuse_ino_t id, size_t size, off_t offset, fuse_file_info* file);
void write(fuse_req_t request, fuse_ino_t id, const char* data, size_t size, off_t offset,
           fuse_file_info* file);
void flush(fuse_req_t request, fuse_ino_t id, fuse_file_info* file);
void release(fuse_req_t request, fuse_ino_t id, fuse_file_info* file);
void fsync(fuse_req_t request, fuse_ino_t id, int data_only, fuse_file_info* file);
void fallocate(fuse_req_t request, fuse_ino_t id, int mode, off_t offset, off_t length,
               fuse_file_info* file);
void lseek(fuse_req_t request, fuse_ino_t id, off_t offset, int whence, fuse_file_info* file);
void copy_file_range(fuse_req_t request, fuse_ino_t id_in, off_t offset_in, fuse_file_info* in,
                     fuse_ino_t id_out, off_t offset_out, fuse_file_info* out, size_t length,
                     int flags);
void ioctl(fuse_req_t request, fuse_ino_t id, unsigned command, void* argument,
           fuse_file_info* file, unsigned flags, const void* in, size_t in_size, size_t out_size);

// --- dir_ops.cc: open directories

void opendir(fuse_req_t request, fuse_ino_t id, fuse_file_info* file);
void readdir(fuse_req_t request, fuse_ino_t id, size_t size, off_t offset, fuse_file_info* file);
void readdirplus(fuse_req_t request, fuse_ino_t id, size_t size, off_t offset,
                 fuse_file_info* file);
void releasedir(fuse_req_t request, fuse_ino_t id, fuse_file_info* file);
void fsyncdir(fuse_req_t request, fuse_ino_t id, int data_only, fuse_file_info* file);

// --- lock_ops.cc: POSIX locks, with --own-locks

void getlk(fuse_req_t request, fuse_ino_t id, fuse_file_info* file, struct ::flock* lock);
void setlk(fuse_req_t request, fuse_ino_t id, fuse_file_info* file, struct ::flock* lock, int);
// The owner closes an fd of the file.
void drop_locks(fuse_ino_t id, std::uint64_t owner);

}  // namespace operations
}  // namespace cube::lagfs
