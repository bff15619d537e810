// cubeshim bench: measures the time per file on a mount and on this machine, and forecasts a job.
// Writes nothing to the mount.
#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <utility>

#include "cache/base/clock.h"
#include "cache/base/error_text.h"
#include "shim/cli/bench/bench_report.h"
#include "shim/cli/bucket/session.h"
#include "shim/cli/color.h"
#include "shim/cli/commands.h"
#include "shim/cli/complaint.h"
#include "shim/cli/doctor/checks.h"
#include "shim/cli/interrupt.h"
#include "shim/cli/settings.h"
#include "shim/cli/shell/wrap.h"
#include "shim/cli/similar_path.h"
#include "shim/cli/wrong_use.h"

namespace cube::cli {
namespace {

constexpr unsigned k_many = 32;

struct Bench {
  Settings settings;
  std::string directory;
  std::size_t files = 1000;
  unsigned seconds = 30;
  bool json = false;
};

// Shows the current step of the measurement on a terminal.
class Step {
 public:
  explicit Step(std::string_view what) {
    if (is_shown()) tell("\r{}\x1b[K", what);
  }
  ~Step() {
    if (is_shown()) tell("\r\x1b[K");
  }
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

 private:
  static bool is_shown() { return isatty(STDERR_FILENO) != 0; }
};

// Each pass reads its own files, so that no pass warms a cache for another.
void measure_mount(const Bench& bench, BenchResult& result) {
  const auto after = [&](unsigned percent) {
    return base::monotonic_ns() + bench.seconds * 10'000'000ULL * percent;
  };
  constexpr std::size_t k_listed_for_each = 20;
  std::optional<Step> step(std::in_place, "bench 1/5: listing directories");
  result.sample = take_bench_sample(result.directory, {.files = bench.files,
                                                       .listed = k_listed_for_each * bench.files,
                                                       .in_flight = k_many,
                                                       .until_ns = after(20)});
  const std::span<const std::string> files(result.sample.files);
  const std::size_t quarter = files.size() / 4;
  const auto options = [&](unsigned in_flight, bool drop) {
    return PassOptions{.in_flight = in_flight,
                       .until_ns = after(16),
                       .max_file = result.max_file,
                       .drop_pages = drop};
  };
  // If there are few files, all of them are read one at a time.
  const auto one = quarter == 0 ? files : files.subspan(0, quarter);
  step.emplace("bench 2/5: reading files, one at a time");
  result.read_one = read_files(one, options(1, true));
  result.read_again =
      read_files(one.subspan(0, result.read_one.whole.count() + result.read_one.too_large +
                                    result.read_one.failed),
                 options(1, false));
  step.emplace("bench 3/5: reading files, many at a time");
  result.read_many = read_files(files.subspan(quarter == 0 ? files.size() : quarter, quarter),
                                options(k_many, true));
  step.emplace("bench 4/5: files' attributes");
  result.stat_one = stat_files(files.subspan(2 * quarter, quarter), options(1, false));
  result.stat_many =
      stat_files(files.subspan(quarter == 0 ? files.size() : 3 * quarter), options(k_many, false));
}

int bench(const Bench& bench) {
  if (const auto name = s3::parse_s3_uri(bench.directory))
    return bench_bucket(
        {.name = *name, .files = bench.files, .seconds = bench.seconds, .json = bench.json});
  const auto parsed = bench.settings.parse();
  if (tell_errors(parsed)) return 2;
  struct ::stat st {};
  struct ::statfs fs {};
  if (stat(bench.directory.c_str(), &st) != 0 || statfs(bench.directory.c_str(), &fs) != 0) {
    const int error = errno;
    return complain(2, fmt::format("{}: {}{}", bench.directory, base::text_of_error(error),
                                   path_hint(bench.directory, error)));
  }
  if (!S_ISDIR(st.st_mode))
    return complain(2, fmt::format("{} is not a directory: bench takes a directory of the mount",
                                   bench.directory));
  note_interrupts();
  BenchResult result;
  result.directory = bench.directory;
  while (result.directory.size() > 1 && result.directory.ends_with('/'))
    result.directory.pop_back();
  result.file_system = file_system_name(fs.f_type);
  result.max_file = parsed.config.max_file;
  measure_mount(bench, result);
  if (result.sample.files.empty() && interrupted_by() == 0)
    return complain(
        1,
        fmt::format("{} holds no regular file that can be found: bench takes a directory with some",
                    bench.directory));
  if (interrupted_by() == 0) {
    auto sizes = result.read_one.sizes;
    sizes.insert(sizes.end(), result.read_many.sizes.begin(), result.read_many.sizes.end());
    const Step step("bench 5/5: this machine's disk, and hits");
    result.machine = measure_machine(parsed.config, sizes);
  }
  if (interrupted_by() != 0) return 128 + interrupted_by();
  if (bench.json) {
    fmt::print("{}", result.json());
  } else {
    print_fitted(with_painted_lines(result.text(), {{"Today:", Color::strong},
                                                    {"Epoch 1:", Color::strong},
                                                    {"Epoch 2:", Color::strong},
                                                    {"Not measured:", Color::fair}}));
  }
  return result.read_one.whole.count() != 0 ? 0 : 1;
}

}  // namespace

void add_bench(CLI::App& app, int& status) {
  CLI::App* const command =
      app.add_subcommand("bench", "Measure a mount, and say what the cache would save");
  const auto options = std::make_shared<Bench>();
  command
      ->add_option("DIRECTORY", options->directory,
                   "A directory of the mount, or s3://BUCKET/PREFIX; nothing is written there")
      ->required();
  add_value(*command, "--files", "COUNT", options->files,
            "Measure at most this many files; the default is 1000")
      ->check(whole_number(1, 1'000'000));
  add_value(*command, "--seconds", "SECONDS", options->seconds,
            "Measure the mount for at most this many seconds; the default is 30")
      ->check(whole_number(1, 86400));
  command->add_flag("--json", options->json, "One JSON object");
  add_color_option(*command);
  options->settings.add_to(*command, Settings::Which::all);
  command->callback([options, &status] { status = bench(*options); });
}

void add_read_hits(CLI::App& app, int& status) {
  CLI::App* const command = app.add_subcommand("read-hits", "Read files for bench")->group("");
  const auto directory = std::make_shared<std::string>();
  command->add_option("DIRECTORY", *directory, "The files")->required();
  command->callback([directory, &status] { status = read_hits(*directory); });
}

}  // namespace cube::cli
