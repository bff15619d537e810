#include "cache/base/view.h"

#include <linux/capability.h>

#include "cache/base/aside.h"
#include "cache/base/hash.h"
#include "cache/base/sys.h"

namespace cube::base {
namespace {

// More groups than this are told apart by the first of them and by their number.
constexpr long k_groups = 1024;

struct Groups {
  gid_t ids[k_groups];
};

std::uint64_t hash_of_groups() {
  return use_aside<Groups>([](Groups& groups) {
    const long n = sys::raw(SYS_getgroups, k_groups, sys::arg(groups.ids));
    const std::size_t bytes = sys::failed(n) ? 0 : static_cast<std::size_t>(n) * sizeof(gid_t);
    return sys::failed(n) ? static_cast<std::uint64_t>(-n) : hash_bytes(groups.ids, bytes);
  });
}

// The capabilities that let a process read a file against its mode.
std::uint32_t reading_capabilities() {
  ::__user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  ::__user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3]{};
  if (sys::failed(sys::raw(SYS_capget, sys::arg(&header), sys::arg(data)))) return 0;
  return data[0].effective & ((1U << CAP_DAC_OVERRIDE) | (1U << CAP_DAC_READ_SEARCH));
}

// A region that is kept on a disk outlives the boot, and with it the clock of its marks.
std::uint64_t hash_of_boot() {
  char text[64];
  const long n = sys::read_small_file("/proc/sys/kernel/random/boot_id", text, sizeof text);
  return sys::failed(n) ? 0 : hash_bytes(text, static_cast<std::size_t>(n));
}

std::uint64_t inode_of(const char* path) {
  struct ::stat st {};
  return sys::failed(sys::fstatat(AT_FDCWD, path, &st, 0)) ? 0 : st.st_ino;
}

}  // namespace

std::uint64_t current_view() {
  // A namespace has mounts of its own, so the id of the root's mount tells it apart even where /proc is not mounted.
  struct ::statx root {};
  sys::statx(AT_FDCWD, "/", AT_NO_AUTOMOUNT, STATX_INO | STATX_MNT_ID, &root);
  const std::uint64_t parts[] = {inode_of("/proc/self/ns/mnt"),
                                 inode_of("/proc/self/ns/user"),
                                 (root.stx_mask & STATX_MNT_ID) != 0 ? root.stx_mnt_id : 0,
                                 (static_cast<std::uint64_t>(root.stx_dev_major) << 32) | root.stx_dev_minor,
                                 root.stx_ino,
                                 static_cast<std::uint64_t>(sys::raw(SYS_getegid)),
                                 hash_of_groups(),
                                 reading_capabilities(),
                                 hash_of_boot()};
  const std::uint64_t view = hash_bytes(parts, sizeof parts);
  return view != 0 ? view : 1;
}

}  // namespace cube::base
