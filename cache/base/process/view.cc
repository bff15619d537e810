#include "cache/base/process/view.h"

#include <linux/capability.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <optional>
#include <string_view>

#include "cache/base/hash.h"
#include "cache/base/memory/mapping.h"
#include "cache/base/process/landlock.h"
#include "cache/base/sys.h"

namespace cube::base {
namespace {

constexpr unsigned k_unique_mount_id = 0x4000;  // STATX_MNT_ID_UNIQUE: Linux 6.8

// The user, the group and the supplementary groups of the process, as its user namespace shows
// them.
struct Ids {
  std::uint32_t user = 0, group = 0;
  std::uint64_t groups = 0;   // a hash, or 0 if there are none
  bool are_known = true;      // if false, `groups` is meaningless
  bool are_unmapped = false;  // the namespace may show several ids as one
};

// The id that stands for all ids that the user namespace does not map.
std::uint32_t overflow_id(const char* path) {
  constexpr std::uint32_t k_usual = 65534;
  char text[16];
  const long n = sys::read_small_file(path, text, sizeof text);
  std::uint32_t id = k_usual;
  if (!sys::failed(n)) std::from_chars(text, text + n, id);
  return id;
}

// There can be up to 65,536 groups, so they are read into a mapping.
Ids own_ids(bool is_in_first_namespace) {
  Ids ids{.user = static_cast<std::uint32_t>(sys::geteuid()),
          .group = static_cast<std::uint32_t>(sys::raw(SYS_getegid))};
  // The first namespace maps all ids.
  std::optional<std::uint32_t> no_group;
  if (!is_in_first_namespace) {
    no_group = overflow_id("/proc/sys/kernel/overflowgid");
    ids.are_unmapped =
        ids.group == no_group || ids.user == overflow_id("/proc/sys/kernel/overflowuid");
  }
  const long count = sys::raw(SYS_getgroups, 0, 0);
  if (count == 0) return ids;
  const auto room =
      Mapping::anonymous(static_cast<std::size_t>(sys::failed(count) ? 0 : count) * sizeof(gid_t));
  const long n = room ? sys::raw(SYS_getgroups, count, sys::arg(room->data())) : -ENOMEM;
  ids.are_known = !sys::failed(n);
  if (!ids.are_known) return ids;
  const auto* const groups = reinterpret_cast<const gid_t*>(room->data());
  ids.groups = hash_bytes(groups, static_cast<std::size_t>(n) * sizeof *groups);
  ids.are_unmapped |= std::any_of(groups, groups + n, [&](gid_t id) { return id == no_group; });
  return ids;
}

// The capabilities that let a process read a file whose mode does not allow it.
std::uint32_t reading_capabilities() {
  ::__user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  ::__user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3]{};
  if (sys::failed(sys::raw(SYS_capget, sys::arg(&header), sys::arg(data)))) return 0;
  return data[0].effective & ((1U << CAP_DAC_OVERRIDE) | (1U << CAP_DAC_READ_SEARCH));
}

bool has_real_ids(int get_ids, bool& is_root) {
  std::uint32_t real = 0, effective = 0, saved = 0;
  sys::raw(get_ids, sys::arg(&real), sys::arg(&effective), sys::arg(&saved));
  is_root = real == 0;
  return real == effective;
}

// 0: the file cannot be read.
std::uint64_t hash_of_file(const char* path) {
  char text[1024];
  const long n = sys::read_small_file(path, text, sizeof text);
  return sys::failed(n) ? 0 : hash_bytes(text, static_cast<std::size_t>(n));
}

std::uint64_t inode_of(const char* path) {
  struct ::stat st {};
  return sys::failed(sys::fstatat(AT_FDCWD, path, &st, 0)) ? 0 : st.st_ino;
}

// The first user namespace always has this inode. A later namespace can have the inode of a
// namespace that has ended.
bool is_in_first_user_namespace() { return inode_of("/proc/self/ns/user") == 0xeffffffd; }

// A token that a process shares with its forked children, but not with a program that it executes.
std::uint64_t token_of_family() {
  static constinit std::atomic<std::uint64_t> g_token{0};
  std::uint64_t token = g_token.load(std::memory_order_relaxed);
  if (token != 0) return token;
  struct ::timespec now {};
  sys::raw(SYS_clock_gettime, CLOCK_MONOTONIC, sys::arg(&now));
  const std::uint64_t parts[] = {static_cast<std::uint64_t>(now.tv_sec),
                                 static_cast<std::uint64_t>(now.tv_nsec),
                                 static_cast<std::uint64_t>(sys::raw(SYS_gettid))};
  const std::uint64_t made = hash_bytes(parts, sizeof parts) | 1;
  return g_token.compare_exchange_strong(token, made, std::memory_order_relaxed) ? made : token;
}

// Calls may_be_in_landlock_domain() only once, because the call is expensive. A process that enters
// a domain later is no longer served.
bool is_in_domain() {
  constexpr int k_not_asked = -1;
  static constinit std::atomic<int> g_answer{k_not_asked};
  int answer = g_answer.load(std::memory_order_relaxed);
  if (answer == k_not_asked) {
    answer = may_be_in_landlock_domain() ? 1 : 0;
    g_answer.store(answer, std::memory_order_relaxed);
  }
  return answer != 0;
}

}  // namespace

bool access_has_own_rights() {
  bool is_root = false, has_root_group = false;
  return has_real_ids(SYS_getresgid, has_root_group) && has_real_ids(SYS_getresuid, is_root) &&
         (is_root || reading_capabilities() == 0);
}

std::uint64_t current_rights() {
  const bool is_first = is_in_first_user_namespace();
  const Ids ids = own_ids(is_first);
  // True if a process with other rights could look the same.
  const bool is_alone = is_in_domain() || !ids.are_known || ids.are_unmapped;
  const std::uint64_t parts[] = {ids.user,
                                 ids.group,
                                 ids.groups,
                                 reading_capabilities(),
                                 is_first ? 0 : hash_of_file("/proc/self/uid_map"),
                                 is_first ? 0 : hash_of_file("/proc/self/gid_map"),
                                 hash_of_file("/proc/self/attr/current"),
                                 is_alone ? token_of_family() : 0};
  return hash_bytes(parts, sizeof parts) | 1;
}

View current_view() {
  // Paths are resolved in the mount namespace to which the mount of the root belongs, even if the
  // process is in another mount namespace. A new directory can have the inode of a removed root,
  // but not its birth time.
  struct ::statx root {};
  sys::statx(AT_FDCWD, "/", AT_NO_AUTOMOUNT,
             STATX_INO | STATX_BTIME | STATX_MNT_ID | k_unique_mount_id, &root);
  View view;
  view.rights = current_rights();
  view.is_lasting = (root.stx_mask & k_unique_mount_id) != 0 && is_in_first_user_namespace();
  const std::uint64_t parts[] = {
      view.rights, inode_of("/proc/self/ns/mnt"), inode_of("/proc/self/ns/user"),
      (root.stx_mask & (STATX_MNT_ID | k_unique_mount_id)) != 0 ? root.stx_mnt_id : 0,
      (static_cast<std::uint64_t>(root.stx_dev_major) << 32) | root.stx_dev_minor, root.stx_ino,
      static_cast<std::uint64_t>(root.stx_btime.tv_sec), root.stx_btime.tv_nsec,
      // A region that is kept on a disk survives a reboot, but its marks contain times of a clock
      // that starts again.
      hash_of_file("/proc/sys/kernel/random/boot_id")};
  view.number = hash_bytes(parts, sizeof parts);
  if (view.number <= View::k_ended) view.number = View::k_ended + 1;
  return view;
}

}  // namespace cube::base
