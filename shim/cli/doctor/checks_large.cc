// cubeshim doctor: checks whether files can be served in blocks. Blocks need certain settings, room
// in memory, copies of fds for reading ahead, and a mount on which repeated stats of a file agree.
#include <fcntl.h>

#include <cerrno>
#include <thread>
#include <vector>

#include "cache/base/error_text.h"
#include "cache/base/memory/kernel_page.h"
#include "cache/base/memory/memory_limits.h"
#include "cache/base/sys.h"
#include "cache/base/unique_fd.h"
#include "cache/record/file_stat.h"
#include "cache/record/record.h"
#include "prefetch/threads/background_thread.h"
#include "prefetch/threads/host_fds.h"
#include "prefetch/threads/thread_trial.h"
#include "shim/cli/doctor/checks.h"
#include "shim/cli/settings.h"

namespace cube::cli {
namespace {

// This much memory is enough: four times the most bytes that are fetched ahead for one reader of a
// file.
constexpr std::uint64_t k_enough = 64 << 20;

// The first call that fails among the calls that reading ahead needs. `call` is empty if all
// succeed.
struct NoCopies {
  std::string call;
  int error = 0;
  const char* release = "";
};

NoCopies try_copies(int number) {
  if (const auto table = prefetch::take_private_fd_table(); !table)
    return {"close_range(CLOSE_RANGE_UNSHARE)", table.error().value, "5.9"};
  const auto own = prefetch::HostFds::open();
  if (!own) return {"pidfd_open", own.error().value, "5.3"};
  const auto copy = own->copy_of(number);
  return copy ? NoCopies{} : NoCopies{"pidfd_getfd", copy.error().value, "5.6"};
}

// Copies an fd in a thread with its own fds, as the library does in a program.
void check_copies(Findings& findings) {
  const auto number = base::open_fd("/dev/null", O_RDONLY);
  if (!number) return;
  NoCopies none;
  const int tried = is_filtered() ? prefetch::try_calls_of_threads() : 0;
  if (tried == prefetch::k_killed)
    return say(findings, Health::slow,
               "allow close_range, and what a new thread calls, in the seccomp profile",
               "large files are not read ahead: the seccomp filter kills the process for a call "
               "that the threads make");
  if (tried != 0) none = {"close_range(CLOSE_RANGE_UNSHARE)", tried, "5.9"};
  if (!is_filtered()) std::jthread([&] { none = try_copies(number->get()); }).join();
  if (tried == 0 && is_filtered())
    return say(findings, Health::well, "",
               "large files are read ahead of programs, through files that the library opens "
               "itself (seccomp)");
  if (none.call.empty())
    return say(findings, Health::well, "", "large files are read ahead of programs");
  if (none.call != "close_range(CLOSE_RANGE_UNSHARE)" &&
      (none.error == EPERM || none.error == EACCES || none.error == ENOSYS))
    return say(findings, Health::well, "",
               "large files are read ahead of programs, through files that the library opens "
               "itself ({}: {})",
               none.call, base::text_of_error(none.error));
  const std::string effect = "programs wait for each part that they read for the first time";
  say(findings, Health::slow,
      is_filtered()
          ? effect + "; allow it in the seccomp profile (docker run --security-opt seccomp=FILE)"
          : fmt::format("{}; Linux {} has it", effect, none.release),
      "large files are not read ahead: {}: {}", none.call, base::text_of_error(none.error));
}

}  // namespace

std::string why_no_blocks(const base::Config& config) {
  if (config.block == 0) return "CUBESHIM_BLOCK=0";
  if (config.mode != base::Mode::virtual_files) return "CUBESHIM_MODE";
  // Packs and buckets have no mount, so the check is skipped.
  if (!config.origins.empty()) return "CUBESHIM_PACKS";
  return config.buckets.empty() ? "" : "CUBESHIM_BUCKETS";
}

void check_large_files(const base::Config& config, Findings& findings) {
  if (config.block == 0 || config.mode == base::Mode::off) return;
  if (const std::string why = why_no_blocks(config); !why.empty())
    return say(findings, Health::well, "",
               "files larger than CUBESHIM_MAX_FILE are left to the kernel: {} is set", why);
  say(findings, Health::well, "",
      "files larger than CUBESHIM_MAX_FILE ({}) are served in blocks of {}",
      in_units(config.max_file), in_units(config.block));
  if (const std::uint64_t ram = wanted_ram(config, base::available_memory()); ram < k_enough)
    say(findings, Health::slow,
        fmt::format("raise CUBESHIM_RAM to {} at least", in_units(k_enough)),
        "{} of memory is little for blocks of large files", in_units(ram));
  if (base::kernel_page() != cache::k_page)
    say(findings, Health::well, "",
        "the kernel makes all mappings of large files: its pages are {}",
        in_units(base::kernel_page()));
  if (config.prefetch) check_copies(findings);
}

void check_large_sample(const std::string& path, Findings& findings) {
  const auto fd = base::open_fd(path.c_str(), O_RDONLY);
  if (!fd) return;
  const auto first = cache::stat_fd(fd->get());
  std::vector<char> buffer(1 << 20);
  const long n = base::sys::pread(fd->get(), buffer.data(), buffer.size(), 0);
  const auto again = base::open_fd(path.c_str(), O_RDONLY);
  const auto second = again ? cache::stat_fd(again->get()) : first;
  if (!first || !second || base::sys::failed(n)) return;
  if (!second->is_unchanged_since(*first))
    say(findings, Health::slow,
        "blocks of such a file are never found again: mount it with stable inode numbers (FUSE: "
        "use_ino), or wait for its writer",
        "{} has another inode, size or time at each check", path);
}

}  // namespace cube::cli
