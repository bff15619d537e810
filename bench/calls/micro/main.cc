// cubeshim_bench: reads a set of files in one of several ways, or times single calls, with or
// without a preloaded library. It makes only one kind of measurement. run_bench.py decides what is
// compared, and times both sides alternately.
//   cubeshim_bench --set DIR [--reader posix|ifstream|fread|copy|copy-16|ideal|direct]
//                  [--processes N] [--passes N]
//   cubeshim_bench --calls DIR
// Both forms also accept the flags of Google Benchmark. With --gated, the program waits for a line
// on stdin before each pass and prints one JSON object for each pass, so that two processes can be
// timed alternately, pass by pass.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <map>

#include "bench/calls/micro/call_benchmarks.h"
#include "bench/calls/micro/team.h"

namespace {

using namespace cube::bench;

struct Options {
  std::string set, names, calls;
  std::size_t limit = 0;
  int passes = 5;
  bool gated = false;
  TeamOptions team;
};

// Suppresses Google Benchmark's own table, because the driver prints the results.
class SilentReporter : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>&) override {}
};

bool next_pass_is_wanted(const Options& options) {
  std::string line;
  return !options.gated || static_cast<bool>(std::getline(std::cin, line));
}

void print_pass(const Pass& pass) {
  fmt::print("{{\"wall_ns\": {}, \"cpu_ns\": {}}}\n", pass.wall_ns, pass.cpu_ns);
  std::fflush(stdout);
}

void read_set(benchmark::State& state, const FileSet& set, const Options& options) {
  const auto files = static_cast<double>(set.count()) * options.team.processes * options.team.loops;
  try {
    Team team(set, options.team);
    if (options.gated) {
      fmt::print("{{\"files\": {}, \"bytes\": {}, \"digest\": \"{}\"}}\n", set.count(), set.bytes(),
                 options.team.cold ? "" : team.digest());
      std::fflush(stdout);
    }
    double cpu_ns = 0;
    bool wanted = true;
    for (auto _ : state) {
      wanted = wanted && next_pass_is_wanted(options);
      if (!wanted) {
        state.SetIterationTime(1e-9);
        continue;
      }
      const Pass pass = team.run();
      state.SetIterationTime(static_cast<double>(pass.wall_ns) / 1e9);
      cpu_ns += static_cast<double>(pass.cpu_ns);
      if (options.gated) print_pass(pass);
    }
    const auto passes = static_cast<double>(state.iterations());
    state.counters["files/s"] = benchmark::Counter(files * passes, benchmark::Counter::kIsRate);
    state.counters["cpu_us/file"] = cpu_ns / 1e3 / (files * passes);
    const std::string digest = team.digest();
    state.SetLabel(digest);
    if (options.gated) fmt::print("{{\"digest\": \"{}\"}}\n", digest);
  } catch (const std::exception& error) {
    state.SkipWithError(error.what());
  }
}

const std::map<std::string, ReaderKind> k_readers{
    {"posix", ReaderKind::posix},  {"ifstream", ReaderKind::ifstream}, {"fread", ReaderKind::fread},
    {"copy", ReaderKind::copy},    {"copy-16", ReaderKind::copy_16},   {"ideal", ReaderKind::ideal},
    {"direct", ReaderKind::direct}};

void add_options(CLI::App& app, Options& options) {
  app.add_option("--set", options.set, "directory whose files are read");
  app.add_option("--names", options.names,
                 "a directory with the same files, to take names and sizes from (default: --set)");
  app.add_option("--calls", options.calls, "a directory to time single calls in");
  app.add_option("--limit", options.limit, "only the first N files");
  app.add_option("--passes", options.passes, "times that the set is read and timed");
  app.add_flag("--gated", options.gated, "one pass for each line on stdin");
  app.add_option("--reader", options.team.reader, "how a file is read")
      ->transform(CLI::CheckedTransformer(k_readers));
  app.add_option("--processes", options.team.processes,
                 "readers at the same time, each of the whole set");
  app.add_option("--loops", options.team.loops, "how often one pass reads the set");
  app.add_option("--seed", options.team.seed,
                 "of the order; with --calls, of the layout of memory");
  app.add_flag("--cold", options.team.cold, "the first pass is the first look at the files");
  app.add_option("--arena", options.team.arena,
                 "with --reader direct: the file that holds the set's files, or is to");
  app.add_option("--filler", options.team.filler, "a directory that is read once before all else");
  app.allow_extras();
}

// Reads all files, so that a cache is attached before single calls are timed, as in a job.
void read_all(const std::string& directory) {
  const FileSet set = FileSet::list(directory, 0);
  const auto reader = make_reader(ReaderKind::posix, set, {});
  for (std::uint32_t i = 0; i < set.count(); ++i) reader->read(i);
}

int run(const Options& options) {
  FileSet set;
  if (!options.set.empty()) {
    set = FileSet::list(options.set, options.limit, options.names);
    const auto name = fmt::format("Read/{}/{}", options.set.substr(options.set.rfind('/') + 1),
                                  options.team.processes);
    benchmark::RegisterBenchmark(name.c_str(),
                                 [&](benchmark::State& state) { read_set(state, set, options); })
        ->Iterations(options.passes)
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  }
  if (!options.calls.empty()) {
    if (!options.team.filler.empty()) read_all(options.team.filler);
    register_call_benchmarks(options.calls, options.team.seed);
  }
  SilentReporter silent;
  const std::size_t ran = options.gated ? benchmark::RunSpecifiedBenchmarks(&silent)
                                        : benchmark::RunSpecifiedBenchmarks();
  return ran == 0 ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Reads files, or times single calls, with the preloaded library, if any.");
  add_options(app, options);
  CLI11_PARSE(app, argc, argv);
  auto extras = app.remaining();
  std::vector<char*> rest{argv[0]};
  for (auto& extra : extras) rest.push_back(extra.data());
  int count = static_cast<int>(rest.size());
  benchmark::Initialize(&count, rest.data());
  if (benchmark::ReportUnrecognizedArguments(count, rest.data())) return 2;
  if (options.set.empty() == options.calls.empty()) {
    fmt::print(stderr, "cubeshim_bench: give --set DIR or --calls DIR (see --help)\n");
    return 2;
  }
  try {
    return run(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "cubeshim_bench: {}\n", error.what());
    return 1;
  }
}
