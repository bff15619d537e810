// A table of system calls by number, for programs that call syscall(): which arguments are fds, and
// how the shim must treat the call. Thread safety: constants.
#pragma once

#include <cstdint>

namespace cube::shim {

// Calls that the oldest supported kernel headers lack. Their numbers are the same on all
// architectures.
inline constexpr long k_process_madvise = 440, k_epoll_pwait2 = 441, k_mount_setattr = 442,
                      k_quotactl_fd = 443, k_landlock_create_ruleset = 444,
                      k_landlock_add_rule = 445, k_landlock_restrict_self = 446,
                      k_memfd_secret = 447, k_process_mrelease = 448, k_cachestat = 451,
                      k_fchmodat2 = 452, k_lsm_set_self_attr = 460, k_setxattrat = 463,
                      k_getxattrat = 464, k_listxattrat = 465, k_removexattrat = 466,
                      k_open_tree_attr = 467, k_file_getattr = 468, k_file_setattr = 469;
// The table has all calls up to this number (Linux 6.18).
inline constexpr long k_last_known = 469;

enum class SyscallKind : std::uint8_t {
  one_fd,
  two_fds,
  makes_fd,
  closes,
  forks,
  ends,
  identity,
  sandbox,
  hands_on,  // may pass fds to other processes: materializes served files, and notes files that
             // are open for writing
  everything,
  unknown
};
struct SyscallRow {
  long number;
  SyscallKind kind;
  int first = 0, second = 0;  // positions of fds
};

// Returns null if the call has nothing to do with fds. For a call newer than the table, returns a
// row that treats any argument as a possible fd.
const SyscallRow* syscall_row_of(long number);

}  // namespace cube::shim
