#include "shim/cli/bench/bench_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "shim/cli/printable.h"
#include "shim/cli/settings.h"

namespace cube::cli {
namespace {

using Json = nlohmann::ordered_json;

struct BenchRow {
  const char* name;
  const Timings* timings;
  const Pass* pass;
};

std::vector<BenchRow> mount_rows(const BenchResult& r) {
  return {{"open", &r.read_one.open, &r.read_one},
          {"open", &r.read_many.open, &r.read_many},
          {"read", &r.read_one.read, &r.read_one},
          {"read", &r.read_many.read, &r.read_many},
          {"stat", &r.stat_one.whole, &r.stat_one},
          {"stat", &r.stat_many.whole, &r.stat_many},
          {"list", &r.sample.list_one.whole, &r.sample.list_one},
          {"list", &r.sample.list_many.whole, &r.sample.list_many},
          {"file", &r.read_one.whole, &r.read_one},
          {"file", &r.read_many.whole, &r.read_many},
          {"file again", &r.read_again.whole, &r.read_again}};
}

std::string megabytes(const Pass& pass) {
  return fmt::format("{:.1f}", pass.bytes_per_second() / 1e6);
}

std::string row_text(const BenchRow& row) {
  if (row.timings->count() == 0)
    return fmt::format("  {:<11} {:>9} {:>8}  not measured: too few files or too little time\n",
                       row.name, row.pass->in_flight, 0);
  // The speed is shown only for whole files.
  const bool is_whole = row.timings == &row.pass->whole;
  return fmt::format("  {:<11} {:>9} {:>8} {:>11.1f} {:>11.1f} {:>9} {:>9}\n", row.name,
                     row.pass->in_flight, row.timings->count(), row.timings->us(0.5),
                     row.timings->us(0.99),
                     is_whole ? fmt::format("{:.0f}", row.pass->per_second()) : "",
                     is_whole && row.pass->bytes != 0 ? megabytes(*row.pass) : "");
}

// Each pass needs its own files, and so gets a share of --files.
std::string share_text(const BenchResult& r) {
  const std::string many = fmt::format("{} at once", r.read_many.in_flight);
  std::string text;
  const auto add = [&](const Pass& pass, std::string_view what, std::string_view how) {
    if (pass.whole.count() == 0) return;
    text += fmt::format("{}{} {} {}", text.empty() ? ": " : ", ", pass.whole.count(), what, how);
  };
  add(r.read_one, "read", "one at a time");
  add(r.read_many, "read", many);
  add(r.stat_one, "only stat'ed", "one at a time");
  add(r.stat_many, "only stat'ed", many);
  return text;
}

std::string sample_text(const BenchResult& r) {
  std::string text =
      fmt::format("{} ({}): {} {} files in {}", r.directory, r.file_system,
                  r.sample.is_whole ? "all" : "the first", r.sample.files_seen,
                  counted(r.sample.list_one.whole.count() + r.sample.list_many.whole.count(),
                          "listed directory", "listed directories"));
  std::vector<std::uint64_t> sizes = r.read_one.sizes;
  sizes.insert(sizes.end(), r.read_many.sizes.begin(), r.read_many.sizes.end());
  if (!sizes.empty()) {
    std::sort(sizes.begin(), sizes.end());
    text += fmt::format("\n{} of them were read: {} on average, {} to {}", sizes.size(),
                        in_units(r.mean_size()), in_units(sizes.front()), in_units(sizes.back()));
  }
  text += fmt::format("\n{} were measured{}\n", r.sample.files.size(), share_text(r));
  for (const Pass* const pass : {&r.read_one, &r.read_many, &r.stat_one, &r.stat_many,
                                 &r.sample.list_one, &r.sample.list_many}) {
    if (pass->failed != 0)
      text += fmt::format("{} could not be read, the first is {}\n", pass->failed,
                          printable(pass->first_failure));
  }
  const std::uint64_t large = r.read_one.too_large + r.read_many.too_large;
  if (large != 0)
    text += fmt::format(
        "{} files are larger than CUBESHIM_MAX_FILE ({}): they were not read, and would not be "
        "served\n",
        large, in_units(r.max_file));
  return text;
}

std::string machine_text(const BenchResult& r) {
  const BenchMachine& m = r.machine;
  std::string text = fmt::format("This machine: {} free of {} for the cache, ",
                                 in_units(m.ram_free), in_units(m.ram_total));
  text += m.memory == UINT64_MAX ? "memory not known"
                                 : fmt::format("{} of memory may be used", in_units(m.memory));
  text += m.group_limit == UINT64_MAX
              ? ", no limit of a control group"
              : fmt::format(", the control group allows {}", in_units(m.group_limit));
  text += fmt::format("; CUBESHIM_RAM comes to {}\n", in_units(m.cache_room));
  if (!m.why_no_disk.empty())
    return text + fmt::format("  disk and hits: not measured: {}\n", m.why_no_disk);
  text += row_text({"disk, cold", &m.cold.whole, &m.cold}) +
          row_text({"disk, warm", &m.warm.whole, &m.warm});
  if (!m.why_no_hits.empty())
    return text + fmt::format("  hits: not measured: {}\n", m.why_no_hits);
  text += row_text({"hit", &m.hits.whole, &m.hits});
  return m.unserved.empty() ? text
                            : text + fmt::format("  not served by the library: {}\n", m.unserved);
}

std::string fit_text(const BenchResult& r) {
  const std::uint64_t mean = std::max<std::uint64_t>(r.mean_size(), 1);
  const std::uint64_t room = r.machine.cache_room;
  const std::uint64_t all = mean * r.sample.files_seen;
  // `all` is an estimate from the mean of the sample, so leave a margin.
  if (r.sample.is_whole && all <= room - room / 16)
    return fmt::format("All {} files have about {}: they fit into the {} of memory.\n",
                       r.sample.files_seen, in_units(all), in_units(room));
  if (all > room)
    return fmt::format(
        "The {} files seen have about {}, and memory holds {}: the rest is read from the mount in "
        "each epoch, or from a "
        "local disk (CUBESHIM_DISK_DIR).\n",
        r.sample.files_seen, in_units(all), in_units(room));
  return fmt::format(
      "Memory holds {}, about {} files of this size; {}.\n", in_units(room), room / mean,
      r.sample.is_whole
          ? fmt::format("the {} files seen fill nearly all of it", r.sample.files_seen)
          : fmt::format("there are more than the {} files seen, so it is unknown whether all fit",
                        r.sample.files_seen));
}

std::string conclusion(const BenchResult& r) {
  const double today = r.read_one.per_second();
  if (today == 0) return "Nothing could be read, so nothing can be said.\n";
  std::string text = fmt::format(
      "Today: a worker that reads one file after the other gets {:.0f} files/s ({} MB/s) here.\n",
      today, megabytes(r.read_one));
  if (r.read_many.whole.count() != 0)
    text += fmt::format(
        "Epoch 1: at most {:.0f} files/s ({:.1f} x) for all workers, if the order is listed or "
        "announced: the mount reaches that with {} in flight.\n",
        r.read_many.per_second(), r.read_many.per_second() / today, r.read_many.in_flight);
  const double hit = r.machine.hits.whole.us(0.5), cold = r.read_one.whole.us(0.5),
               again = r.read_again.whole.us(0.5);
  if (hit == 0) return text + "Epoch 2: unknown, because hits were not measured.\n" + fit_text(r);
  text += fmt::format(
      "Epoch 2: {:.0f} files/s for a worker that only reads: a file takes {:.1f} us from the "
      "cache, {:.1f} us here.\n",
      r.machine.hits.per_second(), hit, cold);
  text += again < 2 * hit + 10
              ? fmt::format(
                    "Read again right away, a file takes {:.1f} us here: while all of the data "
                    "stays in the kernel's own cache, cubeshim saves little.\n",
                    again)
              : fmt::format(
                    "Read again right away, a file takes {:.1f} us here, with the help of the "
                    "kernel's own cache.\n",
                    again);
  return text + fit_text(r);
}

constexpr const char* k_not_measured =
    "Not measured: decoding and other work of the job, several nodes at the same time, the load at "
    "other hours. Caches of the server, and metadata that this client has cached, cannot be "
    "emptied "
    "from here: a cold mount may be slower than these figures.\n";

Json json_of(const Pass& pass, const Timings& timings) {
  Json json = {{"in_flight", pass.in_flight}, {"count", timings.count()}};
  json["p50_us"] = timings.us(0.5);
  json["p99_us"] = timings.us(0.99);
  if (&timings == &pass.whole) {
    json["per_s"] = pass.per_second();
    if (pass.bytes != 0) json["bytes_per_s"] = pass.bytes_per_second();
  }
  return json;
}

Json known(std::uint64_t value) { return value == UINT64_MAX ? Json(nullptr) : Json(value); }

}  // namespace

std::uint64_t BenchResult::mean_size() const {
  const std::size_t files = read_one.sizes.size() + read_many.sizes.size();
  return files == 0 ? 0 : (read_one.bytes + read_many.bytes) / files;
}

std::string BenchResult::text() const {
  std::string text = sample_text(*this);
  text += fmt::format("  {:<11} {:>9} {:>8} {:>11} {:>11} {:>9} {:>9}\n", "", "in flight", "count",
                      "p50 us", "p99 us", "a second", "MB/s");
  for (const auto& row : mount_rows(*this)) text += row_text(row);
  return text + machine_text(*this) + "\n" + conclusion(*this) + k_not_measured;
}

std::string BenchResult::json() const {
  Json mount = Json::array();
  for (const auto& row : mount_rows(*this)) {
    Json fields = {{"operation", row.name}};
    fields.update(json_of(*row.pass, *row.timings));
    mount.push_back(std::move(fields));
  }
  Json report = {
      {"directory", directory},
      {"file_system", file_system},
      {"files_seen", sample.files_seen},
      {"is_whole", sample.is_whole},
      {"files_read", read_one.sizes.size() + read_many.sizes.size()},
      {"mean_size", mean_size()},
      {"too_large", read_one.too_large + read_many.too_large},
      {"failed", read_one.failed + read_many.failed + stat_one.failed + stat_many.failed +
                     sample.list_one.failed + sample.list_many.failed},
      {"mount", std::move(mount)}};
  Json& local = report["machine"];
  local = {{"ram_total", machine.ram_total},
           {"ram_free", machine.ram_free},
           {"memory", known(machine.memory)},
           {"group_limit", known(machine.group_limit)},
           {"cache_room", machine.cache_room}};
  if (machine.why_no_disk.empty()) {
    local["disk_cold"] = json_of(machine.cold, machine.cold.whole);
    local["disk_warm"] = json_of(machine.warm, machine.warm.whole);
  }
  if (machine.why_no_hits.empty()) local["hit"] = json_of(machine.hits, machine.hits.whole);
  local["unserved"] = machine.unserved;
  local["not_measured"] = machine.why_no_disk.empty() ? machine.why_no_hits : machine.why_no_disk;
  return report.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace cube::cli
