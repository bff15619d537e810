// cubeshim gateway: the process that fetches objects for a job. The library starts this process.
#include <fmt/core.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "cache/base/error_text.h"
#include "cache/base/process/block_signals.h"
#include "cache/base/process/job_variable.h"
#include "cache/bucket/gateway_start.h"
#include "prefetch/object/gateway.h"
#include "shim/cli/bucket/session.h"
#include "shim/cli/commands.h"
#include "shim/cli/complaint.h"
#include "shim/cli/settings.h"

namespace cube::cli {
namespace {

constexpr int k_no_cache_to_serve = 3;
constexpr std::uint64_t k_linger_ns = 5'000'000'000;

base::ProcessId job_of_environment() {
  const char* const text = std::getenv(base::k_job_variable);
  base::JobVariable job;
  return text != nullptr && base::parse_job_variable(text, job) ? job.first
                                                                : base::current_process();
}

// Sends the reason to the programs, because the stderr of this process leads nowhere.
void refuse_all(cache::Mailbox& mailbox, const std::string& why) {
  for (;;) {
    const auto request = mailbox.take();
    if (!request) return;
    mailbox.finish(request->ticket, EIO, fmt::format("{}: {}", request->url, why));
  }
}

int gateway(const Settings& settings) {
  cache::BucketMount::use_store(cache::gateway_start::store_mark(environ));
  const auto parsed = settings.parse();
  for (const auto& error : parsed.errors) complain(2, error);
  if (!parsed.errors.empty()) return 2;
  const base::Config& config = parsed.config;
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  const auto session = BucketSession::open(config);
  if (session == nullptr) return 1;
  std::string why;
  const auto cache = cache::FileCache::attach(config, job_of_environment(), /*create=*/false, why);
  if (!cache)
    return complain(k_no_cache_to_serve,
                    why.empty()
                        ? fmt::format("there is no cache named {} in {}: {}", config.name,
                                      config.ram_dir, base::text_of_error(cache.error().value))
                        : why);
  cache::Region& region = (*cache)->region();
  cache::Mailbox mailbox(region, cache::BucketMount::store());
  if (const int error = mailbox.become_gateway(); error != 0) {
    if (error == EUSERS)
      refuse_all(mailbox, fmt::format("jobs of this cache use {} stores or credentials already; "
                                      "set another CUBESHIM_NAME",
                                      cache::RegionHeader::k_gateways));
    (*cache)->detach();
    return 0;
  }
  const base::BlockSignals block;
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  const base::UniqueFd signals(signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK));
  const std::string path = mailbox.socket_path();
  auto listener = cache::listen_for_copies(path);
  int status = 0;
  if (!listener) {
    why = fmt::format("no socket for copies: {}: {}", base::text_of_error(listener.error().value),
                      path);
    refuse_all(mailbox, why);
    status = complain(1, why);
  } else {
    prefetch::CopyDesk desk(mailbox, std::move(*listener));
    const auto found = session->credentials.current(std::time(nullptr));
    prefetch::Gateway(
        *(*cache), mailbox, session->client, desk,
        {.disk_dir = config.disk_dir, .who = found ? found->source : "", .linger_ns = k_linger_ns})
        .run([&] {
          signalfd_siginfo unused;
          return read(signals.get(), &unused, sizeof unused) > 0;
        });
    unlink(path.c_str());
  }
  mailbox.resign();
  (*cache)->detach();
  return status;
}

}  // namespace

void add_gateway(CLI::App& app, int& status) {
  CLI::App* const command = app.add_subcommand(
      "gateway", "Fetch objects for the jobs of this node. The library starts it by itself");
  const auto settings = std::make_shared<Settings>();
  settings->add_to(*command, Settings::Which::but_for_profile);
  command->callback([settings, &status] { status = gateway(*settings); });
}

}  // namespace cube::cli
