#include "shim/cli/warmup/warmup_target.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "cache/base/path.h"
#include "prefetch/object/s3/uri.h"
#include "shim/cli/bucket/gateway_ahead.h"

namespace cube::cli {
namespace {

// Returns the settings in a job's environment that concern its data.
std::map<std::string, std::string> of_the_data(
    const std::map<std::string, std::string>& environment) {
  std::map<std::string, std::string> result;
  for (const char* const name :
       {"CUBESHIM_PREFIXES", "CUBESHIM_PACKS", "CUBESHIM_BUCKETS", "CUBESHIM_MAX_FILE",
        "CUBESHIM_BLOCK", "CUBESHIM_MODE", "CUBESHIM_CONSISTENCY", "CUBESHIM_METADATA",
        "CUBESHIM_METADATA_TTL", "CUBESHIM_METADATA_RAM", "CUBESHIM_RAM_KEEP", "CUBESHIM_COMMAND",
        "CUBESHIM_S3_TIMEOUT"}) {
    if (const auto found = environment.find(name); found != environment.end())
      result.insert(*found);
  }
  return result;
}

// Makes the paths of packs absolute. A relative path begins at the directory in which the job was
// started, if that is known.
void find_packs_of(const RunningJob& job, std::vector<base::OriginSetting>& packs) {
  for (auto& pack : packs) {
    if (pack.file.front() != '/')
      pack.file = fmt::format("/proc/{}/cwd/{}", job.leader.pid, pack.file);
  }
}

// Returns the environment of a gateway for this cache: the job's environment, which holds the job's
// credentials, with the settings of this command.
std::map<std::string, std::string> environment_of_gateway(const Settings& settings,
                                                          const RunningJob& job) {
  std::map<std::string, std::string> all = job.environment;
  for (const char* const* row = environ; *row != nullptr; ++row) {
    const std::string_view text = *row;
    const std::size_t equals = std::min(text.find('='), text.size() - 1);
    if (job.environment.empty() || text.starts_with("CUBESHIM_"))
      all[std::string(text.substr(0, equals))] = text.substr(equals + 1);
  }
  for (const auto& [variable, value] : settings.given()) all[variable] = value;
  return all;
}

std::string nothing_to_load_into(const base::Config& config, bool is_there) {
  const std::string cache = fmt::format("a cache named {} in {}", config.name, config.ram_dir);
  const char* const advice =
      "start the job first, or keep the cache for it with --ram-keep 1 here and "
      "CUBESHIM_RAM_KEEP=1 for the job";
  return is_there ? fmt::format(
                        "no job is running with {}, and the next job would not take over what is "
                        "there; {}",
                        cache, advice)
                  : fmt::format("no job is running with {}; {}", cache, advice);
}

}  // namespace

WarmupTarget find_target(const Settings& settings, bool only_look) {
  WarmupTarget target;
  target.parsed = settings.parse();
  if (!target.parsed.errors.empty()) return target;
  const std::unique_ptr<cache::Region> region(look_at_region(target.parsed.config, target.why));
  target.is_broken = !target.why.empty();
  if (target.is_broken) return target;
  if (region != nullptr) {
    target.job = find_running_job(*region);
    target.parsed = settings.parse(of_the_data(target.job.environment));
  }
  base::Config& config = target.parsed.config;
  const bool has_own_packs =
      settings.given().contains("CUBESHIM_PACKS") || std::getenv("CUBESHIM_PACKS") != nullptr;
  if (target.job.leader.pid != 0 && !has_own_packs) find_packs_of(target.job, config.origins);
  const base::ProcessId job =
      target.job.leader.pid != 0 ? target.job.leader : base::current_process();
  if (!config.buckets.empty())
    prepare_gateway(config, job, environment_of_gateway(settings, target.job));
  target.origins =
      cache::Origins::open(config.origins, config.buckets, target.parsed.errors).release();
  if (!target.parsed.errors.empty()) return target;
  const bool is_running = target.job.is_there();
  if (only_look && region == nullptr) {
    target.why = nothing_to_load_into(config, false);
    return target;
  }
  if (!is_running && !config.ram_keep && !(only_look && region != nullptr)) {
    target.why = nothing_to_load_into(config, region != nullptr);
    return target;
  }
  // A command that only inspects an unused cache is the last process to leave the cache, but must
  // not remove it.
  if (only_look && !is_running) config.ram_keep = true;
  const auto cache =
      cache::FileCache::attach(config, job, /*create=*/!is_running && !only_look, target.why);
  if (cache) {
    target.cache = *cache;
    target.cache->use_origins(target.origins);
    if (!config.buckets.empty()) use_gateway(*target.cache, config);
  } else {
    target.is_broken = !target.why.empty();
    if (!target.is_broken) target.why = nothing_to_load_into(config, false);
  }
  return target;
}

bool WarmupTarget::leave() {
  const std::string path = cache->region().path();
  cache->detach();
  return access(path.c_str(), F_OK) == 0;
}

bool find_objects(const base::Config& config, std::vector<std::string>& paths, std::string& why) {
  for (auto& path : paths) {
    if (!s3::is_s3_uri(path)) continue;
    const auto& buckets = config.buckets;
    const auto shown = std::ranges::find_if(
        buckets, [&](const auto& bucket) { return base::is_at_or_below(path, bucket.file); });
    if (shown == buckets.end()) {
      why =
          path + ": no directory of CUBESHIM_BUCKETS shows it, and the cache finds objects by path";
      return false;
    }
    path = shown->prefix + path.substr(shown->file.size());
  }
  return true;
}

}  // namespace cube::cli
