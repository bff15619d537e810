// cubeshim_engines --set DIR: files per second of each engine and depth, and their ratio to the
// plain reader of the same round. In every round all contenders read all files in the same order;
// the order of the contenders is shuffled for each round.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <random>

#include "bench/prefetch/contenders.h"
#include "cache/base/log.h"

namespace {

using cube::base::EngineKind;
using cube::bench::Contender;
using cube::bench::Paths;

struct Row {
  std::string name;
  std::unique_ptr<Contender> contender;
  std::vector<double> rates, ratios, cpu_us;
};

Paths list_files(const std::string& set, std::size_t limit) {
  Paths paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(set)) {
    if (entry.is_regular_file() && entry.path().string().find("/.lagfs") == std::string::npos)
      paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::shuffle(paths.begin(), paths.end(), std::mt19937_64(1));
  if (limit != 0 && paths.size() > limit) paths.resize(limit);
  return paths;
}

// Drops the pages of these files. Other pages stay, because other users need the page cache, too.
void forget_pages(const Paths& paths) {
  for (const auto& path : paths) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
  }
}

double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1) + 0.5)];
}

std::string spread(const std::vector<double>& values, int digits) {
  return fmt::format("{:.{}f} ({:.{}f}-{:.{}f})", quantile(values, 0.5), digits,
                     quantile(values, 0.25), digits, quantile(values, 0.75), digits);
}

double cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) / 1e9;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("engines of prefetch/ against a plain reader with threads");
  std::string set;
  std::vector<unsigned> depths{1, 4, 16, 32, 64, 128};
  std::vector<std::string> only{"threads", "uring", "auto"};
  unsigned rounds = 7, plain_threads = 32;
  std::size_t limit = 0;
  int nice = 0;
  bool cold = false;
  app.add_option("--set", set, "directory of files")->required();
  app.add_option("--depths", depths, "depths of the engines")->delimiter(',');
  app.add_option("--engines", only, "some of threads, uring, auto")->delimiter(',');
  app.add_option("--rounds", rounds, "rounds");
  app.add_option("--threads", plain_threads, "threads of the plain reader");
  app.add_option("--limit", limit, "at most this many files");
  app.add_option("--nice", nice, "niceness of the engines; 0 compares like with like");
  app.add_flag("--cold", cold, "drop the pages of the files before each pass");
  CLI11_PARSE(app, argc, argv);
  cube::base::set_log_level(cube::base::LogLevel::info);  // logs what `auto` decides

  const Paths paths = list_files(set, limit);
  std::uint64_t bytes = 0, largest = 0;
  for (const auto& path : paths) {
    const std::uint64_t size = std::filesystem::file_size(path);
    bytes += size;
    largest = std::max(largest, size);
  }
  std::vector<Row> rows;
  rows.push_back({fmt::format("plain, {} threads", plain_threads),
                  cube::bench::plain_reader(plain_threads),
                  {},
                  {},
                  {}});
  const std::pair<const char*, EngineKind> engines[] = {{"threads", EngineKind::threads},
                                                        {"uring", EngineKind::uring}};
  const auto is_wanted = [&](const char* name) {
    return std::find(only.begin(), only.end(), name) != only.end();
  };
  for (const auto& [name, choice] : engines) {
    if (!is_wanted(name)) continue;
    for (const unsigned depth : depths) {
      rows.push_back({fmt::format("{} {}", name, depth),
                      cube::bench::engine_reader(choice, depth, nice, largest),
                      {},
                      {},
                      {}});
    }
  }
  if (is_wanted("auto"))
    rows.push_back({"auto 32",
                    cube::bench::engine_reader(EngineKind::automatic, 32, nice, largest),
                    {},
                    {},
                    {}});

  std::mt19937 random(7);
  std::vector<std::size_t> order(rows.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  // The round before the first is a warm-up, in which `auto` decides.
  for (unsigned round = 0; round <= rounds; ++round) {
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t i : order) {
      Row& row = rows[i];
      if (row.contender == nullptr) continue;
      if (cold) forget_pages(paths);
      const double cpu = cpu_seconds();
      const auto began = std::chrono::steady_clock::now();
      const std::uint64_t got = row.contender->read_all(paths);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
      if (got != bytes) {
        fmt::print(stderr, "cubeshim_engines: {} has read {} bytes of {}\n", row.name, got, bytes);
        return 1;
      }
      if (round == 0) continue;
      row.rates.push_back(static_cast<double>(paths.size()) / took.count());
      row.cpu_us.push_back((cpu_seconds() - cpu) / static_cast<double>(paths.size()) * 1e6);
    }
    if (round == 0) continue;
    for (Row& row : rows) {
      if (row.contender != nullptr) row.ratios.push_back(row.rates.back() / rows[0].rates.back());
    }
  }
  fmt::print(
      "{} files, {} bytes, {} rounds{}\n\n| reader | files/s | against plain | CPU us/file |\n| "
      "--- | --- | --- | --- |\n",
      paths.size(), bytes, rounds, cold ? ", cold" : "");
  for (Row& row : rows) {
    if (row.contender != nullptr && row.name.starts_with("auto"))
      row.name += fmt::format(" ({})", row.contender->choice());
    if (row.contender == nullptr) {
      fmt::print("| {} | refused | | |\n", row.name);
    } else {
      fmt::print("| {} | {} | {} | {} |\n", row.name, spread(row.rates, 0), spread(row.ratios, 2),
                 spread(row.cpu_us, 0));
    }
  }
}
