#include "operations.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/fsuid.h>
#include <unistd.h>

#include "control.h"

namespace cube::lagfs {
namespace operations {

std::string path_of(const Node& node) { return fmt::format("/proc/self/fd/{}", node.fd()); }

bool names_data_file(const Node& parent, const char* name) {
  struct stat st {};
  return fstatat(parent.fd(), name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
}

int find_entry(Origin& origin, const Node& parent, const char* name, fuse_entry_param& entry) {
  entry = {};
  const int fd = ::openat(parent.fd(), name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return errno;
  if (::fstatat(fd, "", &entry.attr, AT_EMPTY_PATH) != 0) {
    const int error = errno;
    ::close(fd);
    return error;
  }
  entry.ino = origin.nodes.acquire(fd, entry.attr);
  origin.script.lie(entry.attr);
  entry.attr_timeout = origin.options.attr_timeout;
  entry.entry_timeout = origin.options.entry_timeout;
  return 0;
}

bool refuse_control_name(fuse_req_t request, fuse_ino_t parent, const char* name) {
  if (!control::is_control_name(parent, name)) return false;
  fuse_reply_err(request, EPERM);
  return true;
}

// setfsuid applies to the thread, and only root may call it.
ActingAsClient::ActingAsClient(fuse_req_t request) : changed_(geteuid() == 0) {
  if (!changed_) return;
  const fuse_ctx* client = fuse_req_ctx(request);
  setfsgid(client->gid);
  setfsuid(client->uid);
}

ActingAsClient::~ActingAsClient() {
  const int error = errno;  // of the call made under this object
  if (changed_) {
    setfsuid(0);
    setfsgid(getegid());
  }
  errno = error;
}

namespace {

void init(void* userdata, fuse_conn_info* connection) {
  auto& origin = *static_cast<Origin*>(userdata);
  const Options& options = origin.options;
  // READDIRPLUS is used always or never: with AUTO, the kernel decides, and the counters would
  // depend on history.
  connection->want &= ~static_cast<unsigned>(FUSE_CAP_READDIRPLUS | FUSE_CAP_READDIRPLUS_AUTO);
  if (!options.own_locks) connection->want &= ~static_cast<unsigned>(FUSE_CAP_POSIX_LOCKS);
  if (options.readdirplus) connection->want |= connection->capable & FUSE_CAP_READDIRPLUS;
  // A write by lagfs, which is root, does not clear set-user-id bits, so the kernel clears them
  // with a SETATTR.
  connection->want &= ~static_cast<unsigned>(FUSE_CAP_HANDLE_KILLPRIV);
  // The default of 12 would queue read-ahead and RELEASE of busy clients inside the kernel.
  connection->max_background = 1024;
  connection->congestion_threshold = 1024;
  if (options.max_read > 0) connection->max_read = options.max_read;
  if (origin.on_ready) origin.on_ready();
}

// Passes requests for the virtual directory to control, or refuses them.
template <typename Function>
struct Routing;

template <typename... Rest>
struct Routing<void (*)(fuse_req_t, fuse_ino_t, Rest...)> {
  using Function = void (*)(fuse_req_t, fuse_ino_t, Rest...);

  template <Function Source, Function Control>
  static void route(fuse_req_t request, fuse_ino_t id, Rest... rest) {
    (control::is_control(id) ? Control : Source)(request, id, rest...);
  }
  template <Function Source>
  static void guard(fuse_req_t request, fuse_ino_t id, Rest... rest) {
    if (control::is_control(id)) {
      fuse_reply_err(request, EPERM);
    } else {
      Source(request, id, rest...);
    }
  }
};

template <auto Source, auto Control>
constexpr auto k_routed = &Routing<decltype(Source)>::template route<Source, Control>;
template <auto Source>
constexpr auto k_guarded = &Routing<decltype(Source)>::template guard<Source>;

constexpr fuse_lowlevel_ops make_table() {
  fuse_lowlevel_ops table{};
  table.init = init;
  // The following operations also check the name, and do their own routing.
  table.lookup = lookup;
  table.forget = forget;
  table.forget_multi = forget_multi;
  table.symlink = symlink;

  table.getattr = k_routed<&getattr, &control::getattr>;
  table.setattr = k_routed<&setattr, &control::setattr>;
  table.open = k_routed<&open, &control::open>;
  table.read = k_routed<&read, &control::read>;
  table.write = k_routed<&write, &control::write>;
  table.flush = k_routed<&flush, &control::flush>;
  table.release = k_routed<&release, &control::release>;
  table.opendir = k_routed<&opendir, &control::opendir>;
  table.readdir = k_routed<&readdir, &control::readdir>;
  table.releasedir = k_routed<&releasedir, &control::releasedir>;

  table.readdirplus = k_guarded<&readdirplus>;
  table.readlink = k_guarded<&readlink>;
  table.mknod = k_guarded<&mknod>;
  table.mkdir = k_guarded<&mkdir>;
  table.unlink = k_guarded<&unlink>;
  table.rmdir = k_guarded<&rmdir>;
  table.rename = k_guarded<&rename>;
  table.link = k_guarded<&link>;
  table.create = k_guarded<&create>;
  table.fsync = k_guarded<&fsync>;
  table.fsyncdir = k_guarded<&fsyncdir>;
  table.statfs = k_guarded<&statfs>;
  table.getxattr = k_guarded<&getxattr>;
  table.setxattr = k_guarded<&setxattr>;
  table.listxattr = k_guarded<&listxattr>;
  table.removexattr = k_guarded<&removexattr>;
  table.fallocate = k_guarded<&fallocate>;
  table.lseek = k_guarded<&lseek>;
  table.copy_file_range = k_guarded<&copy_file_range>;
  table.ioctl = k_guarded<&ioctl>;
  table.getlk = k_guarded<&getlk>;
  table.setlk = k_guarded<&setlk>;
  // The kernel itself answers operations that are missing here: access (after one request), flock
  // (locally), poll, bmap.
  return table;
}

}  // namespace
}  // namespace operations

const fuse_lowlevel_ops& operation_table() {
  static constexpr fuse_lowlevel_ops k_table = operations::make_table();
  return k_table;
}

}  // namespace cube::lagfs
