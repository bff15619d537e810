// cubeshim doctor: checks the conditions for prefetching: an engine, threads and fds for the
// fetches in flight, and a readable list.
#include <sys/resource.h>

#include "prefetch/engine/thread_engine.h"
#include "prefetch/engine/uring_engine.h"
#include "prefetch/order/path_list.h"
#include "shim/cli/doctor/checks.h"
#include "shim/cli/run/library.h"
#include "shim/cli/settings.h"
#include "shim/process/python_site.h"

namespace cube::cli {
namespace {

// A client that is never called, because nothing is submitted.
struct NoClient final : prefetch::FetchClient {
  prefetch::Room room_for(prefetch::Fetch&, const cache::FileAtOrigin&) override {
    return prefetch::Room::decline(0);
  }
  void ended(prefetch::Fetch&, const prefetch::FetchResult&) override {}
};

void check_engine(const base::Config& config, Findings& findings) {
  NoClient client;
  const prefetch::EngineOptions options{.depth = static_cast<unsigned>(config.prefetch_depth)};
  std::string no_threads, no_ring;
  if (prefetch::make_thread_engine(options, client, no_threads) == nullptr)
    return say(findings, Health::slow,
               "files are then read only when programs open them; Linux 5.9 or later is needed",
               "nothing can be fetched ahead: {}", no_threads);
  const bool has_ring = prefetch::make_uring_engine(options, client, no_ring) != nullptr;
  if (has_ring && config.io_engine == base::EngineKind::automatic)
    return say(findings, Health::well, "",
               "fetching ahead: io_uring or threads, whichever is faster at an origin");
  if (has_ring || config.io_engine == base::EngineKind::threads)
    return say(findings, Health::well, "", "fetching ahead: {}",
               config.io_engine == base::EngineKind::threads
                   ? "threads, as CUBESHIM_IO_ENGINE says"
                   : "io_uring, as CUBESHIM_IO_ENGINE says");
  if (config.io_engine == base::EngineKind::automatic)
    return say(findings, Health::well, "",
               "fetching ahead: threads, because io_uring is not available ({})", no_ring);
  constexpr std::uint64_t k_ring_memory = 1 << 20;
  const bool is_locked_out = limit_of(RLIMIT_MEMLOCK) < k_ring_memory;
  say(findings, Health::slow,
      is_locked_out
          ? "threads are used instead; older kernels count its memory as locked: raise ulimit -l"
          : "threads are used instead; a seccomp profile or kernel.io_uring_disabled may forbid it",
      "CUBESHIM_IO_ENGINE=uring: {}", no_ring);
}

void check_announcements(const base::Config& config, Findings& findings) {
  const std::string library = find_library();
  if (!config.announce || library.empty()) return;
  if (!shim::python_site::find_beside(library.c_str()).empty())
    return say(findings, Health::well, "", "data loaders of Python announce what they will read");
  say(findings, Health::slow,
      "install the Python package with the library (share/cubeshim/python), or copy it beside the "
      "library as its directory site",
      shim::python_site::k_is_missing, library);
}

void check_limit(Findings& findings, __rlimit_resource resource, std::uint64_t needed,
                 const char* what, const char* option) {
  const std::uint64_t limit = limit_of(resource);
  if (limit >= needed) return;
  say(findings, Health::slow,
      fmt::format("raise it to {} (ulimit {}), or set a lower CUBESHIM_PREFETCH_DEPTH", needed,
                  option),
      "{} are limited to {}", what, limit);
}

}  // namespace

void check_prefetch(const base::Config& config, Findings& findings) {
  if (!config.prefetch)
    return say(findings, Health::slow, "unset it, or set it to 1",
               "CUBESHIM_PREFETCH=0: nothing is fetched ahead");
  check_engine(config, findings);
  check_announcements(config, findings);
  // The limits must also leave room for the job's own threads and files.
  constexpr std::uint64_t k_for_the_job = 256;
  const std::uint64_t needed = config.prefetch_depth + k_for_the_job;
  check_limit(findings, RLIMIT_NPROC, needed, "threads and processes of this user", "-u");
  check_limit(findings, RLIMIT_NOFILE, needed, "open files of a process", "-n");
  if (config.prefetch_list.empty()) return;
  std::string why;
  if (prefetch::PathList::open({config.prefetch_list, config.prefixes, false, {}}, why) == nullptr)
    say(findings, Health::slow, "the job goes on without it", "CUBESHIM_PREFETCH_LIST: {}", why);
}

}  // namespace cube::cli
