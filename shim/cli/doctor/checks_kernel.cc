// cubeshim doctor: tries the calls that the library makes one by one, and checks the limits of this
// process.
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "cache/base/error_text.h"
#include "cache/base/memory/memory_limits.h"
#include "cache/base/process/rlimit_fsize.h"
#include "cache/base/sys.h"
#include "cache/base/unique_fd.h"
#include "shim/cli/doctor/checks.h"
#include "shim/cli/settings.h"

namespace cube::cli {
namespace {

using base::sys::arg;
using base::sys::raw;

class CallChecks {
 public:
  CallChecks(const base::Config& config, Findings& findings)
      : findings_(findings), is_filtered_(is_filtered()) {
    file_ = base::UniqueFd(::open(config.ram_dir.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  }

  void run() {
    // Most of these calls exist in every kernel, so the cause of a failure is most likely a seccomp
    // filter.
    if (file_) {
      constexpr const char* k_no_region = "nothing is cached without it";
      check("ftruncate", "2.6", raw(SYS_ftruncate, file_.get(), 4096), Health::broken, k_no_region);
      check("fallocate", "3.5", raw(SYS_fallocate, file_.get(), 0, 0, 4096), Health::broken,
            k_no_region);
      char byte = 0;
      struct ::iovec room {
        &byte, 1
      };
      check("preadv", "2.6", raw(SYS_preadv, file_.get(), arg(&room), 1, 0, 0), Health::broken,
            k_no_region);
      struct ::flock lock {};
      lock.l_type = F_WRLCK;
      check("fcntl(F_OFD_SETLK)", "3.15", raw(SYS_fcntl, file_.get(), F_OFD_SETLK, arg(&lock)),
            Health::broken, "nothing is cached: the death of a process would go unnoticed");
    }
    // An empty name is invalid. If the kernel says so (ENOENT), the call is allowed.
    const long link = raw(SYS_linkat, AT_FDCWD, arg(""), AT_FDCWD, arg(""), 0);
    check("linkat", "2.6", link == -ENOENT ? 0 : link, Health::broken,
          "nothing is cached: the region gets its name through it");
    const long unlink = raw(SYS_unlinkat, AT_FDCWD, arg(""), 0);
    check("unlinkat", "2.6", unlink == -ENOENT ? 0 : unlink, Health::slow,
          "the region stays in memory after the job");
    unsigned long head = 0, length = 0;
    check("get_robust_list", "2.6", raw(SYS_get_robust_list, 0, arg(&head), arg(&length)),
          Health::broken, "nothing is cached without robust futexes");
    struct ::open_how how {};
    how.flags = O_RDONLY | O_CLOEXEC;
    how.resolve = RESOLVE_NO_SYMLINKS;
    const base::UniqueFd root(
        checked_fd("openat2", "5.6", raw(SYS_openat2, AT_FDCWD, arg("/"), arg(&how), sizeof how),
                   "the library then asks /proc about links in paths, which takes longer"));
    const base::UniqueFd memory(
        checked_fd("memfd_create", "3.17", base::sys::memfd_create("cubeshim-doctor", MFD_CLOEXEC),
                   "CUBESHIM_MODE=real and files that vanish while they are open need it"));
    struct ::statx x {};
    check("statx", "4.11", base::sys::statx(AT_FDCWD, "/", 0, STATX_BASIC_STATS, &x), Health::slow,
          "an older call is used");
    check_wipe();
    if (access("/proc/self/fd", X_OK) != 0)
      say(findings_, Health::broken, "mount /proc: a region is given its name through it",
          "/proc/self/fd: {}", base::text_of_error(errno));
    if (is_filtered_ && !is_any_refused_)
      say(findings_, Health::well, "",
          "a seccomp filter is on, and allows the calls that were tried");
  }

 private:
  void check(const char* name, const char* release, long result, Health otherwise,
             const char* effect) {
    if (!base::sys::failed(result)) return;
    const auto error = static_cast<int>(-result);
    is_any_refused_ = true;
    const std::string advice =
        is_filtered_
            ? fmt::format(
                  "{}; allow it in the seccomp profile (docker run --security-opt seccomp=FILE)",
                  effect)
        : error == ENOSYS || error == EINVAL ? fmt::format("{}; Linux {} has it", effect, release)
                                             : std::string(effect);
    say(findings_, otherwise, advice, "{}: {}", name, base::text_of_error(error));
  }

  // Returns the fd, or -1.
  int checked_fd(const char* name, const char* release, long result, const char* effect) {
    check(name, release, result, Health::slow, effect);
    return base::sys::failed(result) ? -1 : static_cast<int>(result);
  }

  void check_wipe() {
    const long page =
        base::sys::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base::sys::failed(page)) return;
    void* const at = reinterpret_cast<void*>(page);  // NOLINT(performance-no-int-to-ptr)
    check("madvise(MADV_WIPEONFORK)", "4.14", base::sys::madvise(at, 4096, MADV_WIPEONFORK),
          Health::slow, "each file call then asks for the process id");
    base::sys::munmap(at, 4096);
  }

  Findings& findings_;
  const bool is_filtered_;
  bool is_any_refused_ = false;
  base::UniqueFd file_;
};

}  // namespace

bool is_filtered() {
  std::vector<char> text(8192);
  const long n = base::sys::read_small_file("/proc/self/status", text.data(), text.size());
  const std::string_view status(text.data(),
                                base::sys::failed(n) ? 0 : static_cast<std::size_t>(n));
  return status.find("\nSeccomp:\t2") != std::string_view::npos;
}

std::uint64_t limit_of(__rlimit_resource resource) {
  struct ::rlimit limit {};
  return getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY ? limit.rlim_cur
                                                                             : UINT64_MAX;
}

void check_kernel(const base::Config& config, Findings& findings) {
  CallChecks(config, findings).run();
}

void check_limits(const base::Config& config, Findings& findings) {
  const std::uint64_t wanted = wanted_ram(config, base::available_memory());
  // The region never grows beyond the room in its directory.
  const auto room = base::shared_room(config.ram_dir.c_str());
  const std::uint64_t region =
      room ? std::min(wanted, room->most_for_region(config.ram.is_percent)) : wanted;
  if (const std::uint64_t most = limit_of(RLIMIT_FSIZE); most <= region)
    say(findings, Health::broken,
        "nothing is cached: raise it (ulimit -f), or set a lower CUBESHIM_RAM",
        "files may have {}, and the cache is one file of {}", in_units(most), in_units(region));
  if (const std::uint64_t most = limit_of(RLIMIT_AS); most != UINT64_MAX)
    say(findings, most <= 2 * region ? Health::broken : Health::slow,
        most <= 2 * region ? "nothing is cached: raise it (ulimit -v), or set a lower CUBESHIM_RAM"
                           : "raise it (ulimit -v) if the job runs short",
        "address space is limited to {}, and the cache takes {} of it in each process",
        in_units(most), in_units(2 * region));
}

}  // namespace cube::cli
