#include "shim/cli/bucket/gateway_ahead.h"

#include <fmt/format.h>
#include <limits.h>
#include <stdlib.h>

#include <vector>

#include "cache/base/process/job_variable.h"
#include "cache/bucket/bucket.h"
#include "cache/bucket/gateway_start.h"

namespace cube::cli {
namespace {

cache::BucketRegion g_region_of_buckets;

std::string own_command() {
  char path[PATH_MAX];
  return realpath("/proc/self/exe", path) == nullptr ? std::string() : path;
}

}  // namespace

void prepare_gateway(const base::Config& config, const base::ProcessId& job,
                     std::map<std::string, std::string> environment) {
  char text[80];
  base::format_job_variable({.first = job}, text, sizeof text);
  environment[base::k_job_variable] = text;
  std::vector<std::string> rows;
  rows.reserve(environment.size());
  for (const auto& [name, value] : environment) rows.push_back(fmt::format("{}={}", name, value));
  std::vector<const char*> list;
  list.reserve(rows.size() + 1);
  for (const auto& row : rows) list.push_back(row.c_str());
  list.push_back(nullptr);
  cache::gateway_start::prepare(config.command.empty() ? own_command() : config.command,
                                list.data());
  cache::BucketMount::use_store(cache::gateway_start::store_mark(list.data()));
}

void use_gateway(cache::FileCache& cache, const base::Config& config) {
  g_region_of_buckets = cache.bucket_region(config);
  cache::Bucket::use_region([] { return g_region_of_buckets; });
  cache::Bucket::use_start(cache::gateway_start::start);
  // If two gateways start at the same time, a lock decides which one continues.
  if (!cache::Mailbox(cache.region(), cache::BucketMount::store()).has_gateway())
    cache::gateway_start::start();
}

}  // namespace cube::cli
