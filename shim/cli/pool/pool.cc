// cubeshim pool: runs a memcached on this node with the flags that the cluster tier needs.
#include "shim/cli/pool/pool.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <memory>

#include "cache/base/error_text.h"
#include "cache/base/sys.h"
#include "cache/base/unique_fd.h"
#include "shim/cli/commands.h"
#include "shim/cli/complaint.h"
#include "shim/cli/pool/pool_storage.h"
#include "shim/cli/run/program_file.h"
#include "shim/cli/settings.h"
#include "shim/cli/wrong_use.h"

namespace cube::cli {
namespace {

constexpr int k_answer_ms = 5000, k_end_ms = 10000, k_step_ms = 20;

struct PoolCommand {
  Settings settings;
  std::string action;
  PoolWish wish;
};

std::uint64_t number_of(const std::map<std::string, std::string>& stats, const std::string& name) {
  const auto found = stats.find(name);
  std::uint64_t value = 0;
  if (found != stats.end())
    std::from_chars(found->second.data(), found->second.data() + found->second.size(), value);
  return value;
}

int tell_status(const base::Config& config) {
  const auto state = PoolState::read(config);
  if (!state)
    return complain(
        1, fmt::format("no pool named {} runs here; cubeshim pool start --memory SIZE starts one",
                       config.name));
  const std::string where = with_port(state->address, state->port);
  const auto stats = ask_memcached(state->address, state->port, "stats", k_answer_ms);
  if (!stats)
    return complain(1,
                    fmt::format("pool {}: memcached (process {}) does not answer at {} within {} s",
                                config.name, state->process.pid, where, k_answer_ms / 1000));
  fmt::print("pool {}: memcached {} (process {}) at {}\n", config.name,
             stats->contains("version") ? stats->at("version") : "?", state->process.pid, where);
  const std::uint64_t gets = number_of(*stats, "cmd_get"), hits = number_of(*stats, "get_hits");
  fmt::print("memory {} of {}, {} items; {} of {} gets were hits; {} connections\n",
             in_units(number_of(*stats, "bytes")), in_units(number_of(*stats, "limit_maxbytes")),
             number_of(*stats, "curr_items"), hits, gets, number_of(*stats, "curr_connections"));
  if (!state->storage.empty())
    fmt::print("NVMe {}: {} of {} used\n", state->storage,
               in_units(number_of(*stats, "extstore_bytes_used")),
               in_units(number_of(*stats, "extstore_limit_maxbytes")));
  return 0;
}

bool ends(const base::ProcessId& process) {
  for (int waited = 0; waited < k_end_ms; waited += k_step_ms) {
    if (base::liveness_of(process) == base::Liveness::dead) return true;
    poll(nullptr, 0, k_step_ms);
  }
  return false;
}

int stop_pool(const base::Config& config) {
  const auto state = PoolState::read(config);
  if (!state) return complain(1, fmt::format("no pool named {} runs here", config.name));
  for (const int signal : {SIGTERM, SIGKILL}) {
    if (kill(static_cast<pid_t>(state->process.pid), signal) != 0 && errno != ESRCH)
      return complain(1, fmt::format("cannot stop process {}: {}", state->process.pid,
                                     base::text_of_error(errno)));
    if (ends(state->process)) break;
  }
  if (base::liveness_of(state->process) != base::Liveness::dead)
    return complain(1, fmt::format("process {} does not end", state->process.pid));
  unlink(PoolState::path_of(config).c_str());
  if (!state->storage.empty()) remove_unused_storage(state->storage);
  fmt::print("pool {} has ended (process {})\n", config.name, state->process.pid);
  return 0;
}

int pool(const PoolCommand& command) {
  const auto parsed = command.settings.parse();
  if (tell_errors(parsed)) return 2;
  if (command.action == "start") return start_pool(parsed.config, command.wish);
  const PoolWish& wish = command.wish;
  if (!wish.memory.empty() || !wish.nvme.empty() || !wish.nvme_size.empty() || !wish.listen.empty())
    return complain(2, "--memory, --nvme, --nvme-size and --listen are for: cubeshim pool start");
  return command.action == "status" ? tell_status(parsed.config) : stop_pool(parsed.config);
}

}  // namespace

std::string with_port(std::string_view address, unsigned port) {
  return address.find(':') == std::string_view::npos ? fmt::format("{}:{}", address, port)
                                                     : fmt::format("[{}]:{}", address, port);
}

std::string PoolState::path_of(const base::Config& config) {
  return fmt::format("{}/cubeshim-pool-{}-{}", config.ram_dir, geteuid(), config.name);
}

std::optional<PoolState> PoolState::read(const base::Config& config) {
  const std::string path = path_of(config);
  const base::UniqueFd fd(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  struct ::stat st {};
  char text[8192];
  if (!fd || fstat(fd.get(), &st) != 0 || st.st_uid != geteuid() || !S_ISREG(st.st_mode))
    return std::nullopt;
  const ssize_t n = ::read(fd.get(), text, sizeof text);
  const auto lines =
      split_words(std::string_view(text, n > 0 ? static_cast<std::size_t>(n) : 0), "\n");
  PoolState state;
  if (lines.size() < 3 || !base::parse_process_id(lines[0], state.process)) return std::nullopt;
  state.address = lines[1];
  std::from_chars(lines[2].data(), lines[2].data() + lines[2].size(), state.port);
  if (lines.size() > 3) state.storage = lines[3];
  if (base::liveness_of(state.process) != base::Liveness::dead) return state;
  unlink(path.c_str());
  return std::nullopt;
}

bool PoolState::write(const base::Config& config) const {
  char id[96];
  const std::size_t n = base::format_process_id(process, id, sizeof id);
  const std::string text =
      fmt::format("{}\n{}\n{}\n{}\n", std::string_view(id, n), address, port, storage);
  const base::UniqueFd fd(
      open(path_of(config).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  return fd && ::write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

void add_pool(CLI::App& app, int& status) {
  CLI::App* const command =
      app.add_subcommand("pool", "Run a memcached on this node, for caches that nodes share");
  const auto options = std::make_shared<PoolCommand>();
  command->add_option("ACTION", options->action, "start, status or stop")
      ->required()
      ->check(one_of({"start", "status", "stop"}));
  add_value(*command, "--memory", "SIZE", options->wish.memory,
            "How much memory it takes, such as 64G");
  add_value(*command, "--nvme", "DIRECTORY", options->wish.nvme,
            "A directory on a local disk, for what memory has no room for");
  add_value(*command, "--nvme-size", "SIZE", options->wish.nvme_size,
            "How much of that disk it takes; by default four fifths of what is free");
  add_value(*command, "--listen", "ADDRESS", options->wish.listen,
            "The address at which other nodes reach it; by default this node alone does");
  add_value(*command, "--port", "PORT", options->wish.port, "Its TCP port; by default 11211")
      ->check(whole_number(1, 65535));
  options->settings.add_to(*command, Settings::Which::of_the_region);
  command->callback([options, &status] { status = pool(*options); });
}

}  // namespace cube::cli
