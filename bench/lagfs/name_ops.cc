// Operations that find, make, move and remove names in a directory.
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "control.h"
#include "operations.h"

namespace cube::lagfs::operations {
namespace {

void reply_entry(fuse_req_t request, const fuse_entry_param& entry) {
  // If the client was interrupted, it does not receive the entry, and the kernel does not count the
  // lookup.
  if (fuse_reply_entry(request, &entry) != 0) origin_of(request).nodes.release(entry.ino, 1);
}

// Ends an operation that has made a name: tells the kernel the name's inode.
void finish_with_entry(fuse_req_t request, Call& call, int error, const Node& parent,
                       const char* name) {
  fuse_entry_param entry{};
  if (error == 0) error = find_entry(origin_of(request), parent, name, entry);
  if (error != 0) return call.finish(error);
  call.wait();
  reply_entry(request, entry);
}

}  // namespace

void lookup(fuse_req_t request, fuse_ino_t parent_id, const char* name) {
  if (control::is_control_name(parent_id, name)) return control::lookup(request, parent_id, name);
  Origin& origin = origin_of(request);
  const Node& parent = node_at(request, parent_id);
  Call call(request, Op::lookup, names_data_file(parent, name));
  if (call.refused()) return;

  fuse_entry_param entry{};
  const int error = find_entry(origin, parent, name, entry);
  if (error == ENOENT && origin.options.negative_timeout > 0) {
    entry.entry_timeout = origin.options.negative_timeout;
    call.note_error();
    call.wait();
    fuse_reply_entry(request, &entry);  // inode 0: the kernel keeps a negative entry
    return;
  }
  if (error != 0) return call.finish(error);
  call.wait();
  reply_entry(request, entry);
}

void forget(fuse_req_t request, fuse_ino_t id, std::uint64_t lookups) {
  Origin& origin = origin_of(request);
  if (!control::is_control(id)) {
    origin.counters.add_forget(1);
    origin.nodes.release(id, lookups);
  }
  fuse_reply_none(request);
}

void forget_multi(fuse_req_t request, size_t count, fuse_forget_data* forgets) {
  Origin& origin = origin_of(request);
  for (size_t i = 0; i < count; ++i) {
    if (control::is_control(forgets[i].ino)) continue;
    origin.counters.add_forget(1);
    origin.nodes.release(forgets[i].ino, forgets[i].nlookup);
  }
  fuse_reply_none(request);
}

void mknod(fuse_req_t request, fuse_ino_t parent_id, const char* name, mode_t mode, dev_t device) {
  if (refuse_control_name(request, parent_id, name)) return;
  const Node& parent = node_at(request, parent_id);
  Call call(request, Op::mknod, S_ISREG(mode));
  if (call.refused()) return;
  int error = 0;
  {
    const ActingAsClient client(request);
    error = errno_if(::mknodat(parent.fd(), name, mode, device) != 0);
  }
  finish_with_entry(request, call, error, parent, name);
}

void mkdir(fuse_req_t request, fuse_ino_t parent_id, const char* name, mode_t mode) {
  if (refuse_control_name(request, parent_id, name)) return;
  const Node& parent = node_at(request, parent_id);
  Call call(request, Op::mkdir, false);
  if (call.refused()) return;
  int error = 0;
  {
    const ActingAsClient client(request);
    error = errno_if(::mkdirat(parent.fd(), name, mode) != 0);
  }
  finish_with_entry(request, call, error, parent, name);
}

void symlink(fuse_req_t request, const char* target, fuse_ino_t parent_id, const char* name) {
  if (refuse_control_name(request, parent_id, name)) return;
  const Node& parent = node_at(request, parent_id);
  Call call(request, Op::symlink, false);
  if (call.refused()) return;
  int error = 0;
  {
    const ActingAsClient client(request);
    error = errno_if(::symlinkat(target, parent.fd(), name) != 0);
  }
  finish_with_entry(request, call, error, parent, name);
}

void link(fuse_req_t request, fuse_ino_t id, fuse_ino_t new_parent_id, const char* new_name) {
  if (refuse_control_name(request, new_parent_id, new_name)) return;
  const Node& node = node_at(request, id);
  const Node& new_parent = node_at(request, new_parent_id);
  Call call(request, Op::link, node.is_data_file());
  if (call.refused()) return;
  const int result =
      ::linkat(AT_FDCWD, path_of(node).c_str(), new_parent.fd(), new_name, AT_SYMLINK_FOLLOW);
  finish_with_entry(request, call, errno_if(result != 0), new_parent, new_name);
}

void unlink(fuse_req_t request, fuse_ino_t parent_id, const char* name) {
  if (refuse_control_name(request, parent_id, name)) return;
  const Node& parent = node_at(request, parent_id);
  Call call(request, Op::unlink, names_data_file(parent, name));
  if (call.refused()) return;
  call.finish(errno_if(::unlinkat(parent.fd(), name, 0) != 0));
}

void rmdir(fuse_req_t request, fuse_ino_t parent_id, const char* name) {
  if (refuse_control_name(request, parent_id, name)) return;
  const Node& parent = node_at(request, parent_id);
  Call call(request, Op::rmdir, false);
  if (call.refused()) return;
  call.finish(errno_if(::unlinkat(parent.fd(), name, AT_REMOVEDIR) != 0));
}

void rename(fuse_req_t request, fuse_ino_t parent_id, const char* name, fuse_ino_t new_parent_id,
            const char* new_name, unsigned flags) {
  if (refuse_control_name(request, parent_id, name)) return;
  if (refuse_control_name(request, new_parent_id, new_name)) return;
  const Node& parent = node_at(request, parent_id);
  const Node& new_parent = node_at(request, new_parent_id);
  Call call(request, Op::rename,
            names_data_file(parent, name) || names_data_file(new_parent, new_name));
  if (call.refused()) return;
  call.finish(errno_if(::renameat2(parent.fd(), name, new_parent.fd(), new_name, flags) != 0));
}

}  // namespace cube::lagfs::operations
