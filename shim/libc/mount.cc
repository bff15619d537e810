// Mount functions of newer libcs, which only make the system calls of the same names.
#include <sys/syscall.h>

#include "shim/calls/syscall_table.h"
#include "shim/libc/exports.h"

template <typename... Arguments>
static int by_number(long number, Arguments... arguments) {
  return static_cast<int>(export_syscall(
      number, (long)arguments...));  // NOLINT(google-readability-casting): integers and pointers
}
int export_move_mount(int from_dir, const char* from, int to_dir, const char* to, unsigned flags) {
  return by_number(SYS_move_mount, from_dir, from, to_dir, to, flags);
}
int export_open_tree(int dir, const char* path, unsigned flags) {
  return by_number(SYS_open_tree, dir, path, flags);
}
int export_mount_setattr(int dir, const char* path, unsigned flags, void* attributes, size_t size) {
  return by_number(cube::shim::k_mount_setattr, dir, path, flags, attributes, size);
}
int export_fsopen(const char* type, unsigned flags) { return by_number(SYS_fsopen, type, flags); }
int export_fspick(int dir, const char* path, unsigned flags) {
  return by_number(SYS_fspick, dir, path, flags);
}
int export_fsconfig(int fd, unsigned command, const char* key, const void* value, int aux) {
  return by_number(SYS_fsconfig, fd, command, key, value, aux);
}
int export_fsmount(int fd, unsigned flags, unsigned attributes) {
  return by_number(SYS_fsmount, fd, flags, attributes);
}
