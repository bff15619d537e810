// cubeshim bench for s3:// names: the latency and bandwidth of whole objects, with 1, 8 and 64
// requests in flight.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "cache/base/clock.h"
#include "shim/cli/bucket/session.h"
#include "shim/cli/complaint.h"
#include "shim/cli/interrupt.h"
#include "shim/cli/printable.h"
#include "shim/cli/settings.h"

namespace cube::cli {
namespace {

constexpr std::array<unsigned, 3> k_in_flight = {1, 8, 64};
constexpr std::uint64_t k_most_object = 16 << 20, k_ns = 1'000'000'000;

struct BucketPass {
  unsigned in_flight = 0;
  std::vector<double> seconds;  // the time of each object
  std::uint64_t bytes = 0, retries = 0, failed = 0;
  double elapsed = 0;
  std::string trouble;

  double at(double share) const {
    return seconds.empty()
               ? 0
               : seconds[static_cast<std::size_t>(share * static_cast<double>(seconds.size() - 1))];
  }
};

// If there are enough objects, each pass reads its own objects, because a store may cache objects
// that it has sent.
BucketPass measure_pass(BucketSession& session, const s3::ObjectName& name,
                        const std::vector<s3::ListedObject>& objects, std::size_t pass_number,
                        unsigned seconds) {
  BucketPass pass;
  pass.in_flight = k_in_flight[pass_number];
  const std::uint64_t begin = base::monotonic_ns(), until = begin + seconds * k_ns;
  std::size_t next = objects.size() * pass_number / k_in_flight.size();
  const std::size_t share = objects.size() < 2 * k_in_flight.size()
                                ? objects.size()
                                : objects.size() / k_in_flight.size();
  std::size_t left = share;
  const std::function<void()> start = [&] {
    if (left == 0 || base::monotonic_ns() >= until || interrupted_by() != 0) return;
    --left;
    const auto& object = objects[next++ % objects.size()];
    session.client.get({.bucket = name.bucket, .key = object.key, .expected_bytes = object.size},
                       [&](s3::Outcome& outcome) {
                         pass.retries += outcome.retries;
                         if (outcome.error != 0) {
                           ++pass.failed;
                           pass.trouble = outcome.trouble;
                         } else {
                           pass.seconds.push_back(outcome.http.seconds);
                           pass.bytes += outcome.bytes;
                         }
                         start();
                       });
  };
  for (unsigned i = 0; i < pass.in_flight; ++i) start();
  session.client.run_until_idle();
  pass.elapsed = static_cast<double>(base::monotonic_ns() - begin) / k_ns;
  std::ranges::sort(pass.seconds);
  return pass;
}

}  // namespace

int bench_bucket(const BucketBench& bench) {
  note_interrupts();
  const auto session = BucketSession::open(k_in_flight.back());
  if (session == nullptr) return 1;
  std::vector<s3::ListedObject> objects;
  s3::Outcome outcome;
  const bool is_listed = list_pages(
      session->client, {.bucket = bench.name.bucket, .prefix = bench.name.key, .delimiter = ""},
      [&](s3::ListPage& page) {
        for (auto& object : page.objects) {
          if (object.size <= k_most_object && object.size != 0)
            objects.push_back(std::move(object));
        }
        return objects.size() < bench.files && interrupted_by() == 0;
      },
      outcome);
  if (!is_listed) return complain(1, printable(outcome.trouble));
  objects.resize(std::min(objects.size(), bench.files));
  if (objects.empty())
    return complain(1, "no object of 1 byte to 16 MiB lies there: bench takes a prefix with some");

  std::vector<BucketPass> passes;
  for (std::size_t i = 0; i < k_in_flight.size() && interrupted_by() == 0; ++i)
    passes.push_back(
        measure_pass(*session, bench.name, objects, i,
                     std::max(1U, bench.seconds / static_cast<unsigned>(k_in_flight.size()))));
  if (interrupted_by() != 0) return 128 + interrupted_by();
  auto json = nlohmann::json::array();
  std::size_t read = 0;
  if (!bench.json)
    fmt::print("in flight  objects/s     MiB/s  median ms    p99 ms  retries  failed\n");
  for (const auto& pass : passes) {
    const double per_second = static_cast<double>(pass.seconds.size()) / pass.elapsed;
    const double mib = static_cast<double>(pass.bytes) / pass.elapsed / (1 << 20);
    read += pass.seconds.size();
    json.push_back({{"in_flight", pass.in_flight},
                    {"objects", pass.seconds.size()},
                    {"bytes", pass.bytes},
                    {"objects_per_second", per_second},
                    {"mib_per_second", mib},
                    {"median_seconds", pass.at(0.5)},
                    {"p99_seconds", pass.at(0.99)},
                    {"retries", pass.retries},
                    {"failed", pass.failed}});
    if (!bench.json)
      fmt::print("{:>9} {:>10.0f} {:>9.1f} {:>10.2f} {:>9.2f} {:>8} {:>7}\n", pass.in_flight,
                 per_second, mib, pass.at(0.5) * 1000, pass.at(0.99) * 1000, pass.retries,
                 pass.failed);
    if (pass.failed != 0) complain(1, printable(pass.trouble));
  }
  if (bench.json) fmt::print("{}\n", json.dump());
  return read != 0 ? 0 : 1;
}

}  // namespace cube::cli
