#include "cache/metadata/directory_times.h"

#include <sys/vfs.h>

#include <algorithm>
#include <charconv>
#include <iterator>

#include "cache/base/process/mount_table.h"
#include "cache/base/sys.h"
#include "cache/base/words.h"

namespace cube::cache {
namespace {

namespace sys = base::sys;

constexpr std::uint64_t k_fuse = 0x65735546;
// f_type of statfs(2): ext4, xfs, btrfs, tmpfs, overlayfs, NFS, SMB (two), Ceph, Lustre, GPFS, ZFS,
// f2fs, BeeGFS, bcachefs.
constexpr std::uint64_t k_kernels[] = {0xef53,     0x58465342, 0x9123683e, 0x01021994, 0x794c7630,
                                       0x6969,     0xff534d42, 0xfe534d42, 0x00c36400, 0x0bd00bd0,
                                       0x47504653, 0x2fc12fc1, 0xf2f52010, 0x19830326, 0xca451a4e};
// File systems in user space, and virtiofs, by their type in mountinfo.
constexpr std::string_view k_in_user_space[] = {
    "virtiofs",       "fuse.cubefs",    "fuse.chubaofs",  "fuse.curvefs",
    "fuse.juicefs",   "fuse.glusterfs", "fuse.ceph-fuse", "fuse.mfs",
    "fuse.mfsmaster", "fuse.sshfs",     "fuse.seaweedfs", "fuse.lagfs"};

bool is_device(std::string_view word, std::uint32_t major, std::uint32_t minor) {
  std::uint32_t found[2] = {};
  const char* const end = word.data() + word.size();
  const auto first = std::from_chars(word.data(), end, found[0]);
  if (first.ec != std::errc{} || first.ptr == end || *first.ptr != ':') return false;
  const auto second = std::from_chars(first.ptr + 1, end, found[1]);
  return second.ec == std::errc{} && second.ptr == end && found[0] == major && found[1] == minor;
}

bool is_known_mount(std::uint32_t major, std::uint32_t minor) {
  bool is_known = false;
  base::for_each_mount([&](std::string_view line) {
    is_known = is_known || keeps_directory_times(line, major, minor);
  });
  return is_known;
}

}  // namespace

bool keeps_directory_times(std::string_view line, std::uint32_t major, std::uint32_t minor) {
  base::take_word(line);
  base::take_word(line);
  if (!is_device(base::take_word(line), major, minor)) return false;
  const std::size_t dash = line.find(" - ");
  if (dash == std::string_view::npos) return false;
  line.remove_prefix(dash + 3);
  const std::string_view type = base::take_word(line);
  return std::find(std::begin(k_in_user_space), std::end(k_in_user_space), type) !=
         std::end(k_in_user_space);
}

bool DirectoryTimes::ask(int directory, std::uint64_t device) {
  struct ::statfs fs {};
  if (sys::failed(sys::raw(SYS_fstatfs, directory, sys::arg(&fs)))) return false;
  const std::uint64_t type = static_cast<std::uint64_t>(fs.f_type) & 0xffffffff;
  if (type == k_fuse)
    return is_known_mount(static_cast<std::uint32_t>(device >> 32),
                          static_cast<std::uint32_t>(device));
  return std::find(std::begin(k_kernels), std::end(k_kernels), type) != std::end(k_kernels);
}

bool DirectoryTimes::are_kept(int directory, std::uint64_t device) {
  if (const auto known = known_.find(device)) return *known;
  const bool are = ask(directory, device);
  known_.note(device, are);
  return are;
}

}  // namespace cube::cache
