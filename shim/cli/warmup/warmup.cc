// cubeshim warmup: loads files, directories and lists of paths into the cache of the running job,
// or into a cache that is kept.
#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <memory>

#include "cache/base/clock.h"
#include "cache/base/path.h"
#include "shim/cli/color.h"
#include "shim/cli/commands.h"
#include "shim/cli/complaint.h"
#include "shim/cli/interrupt.h"
#include "shim/cli/shell/wrap.h"
#include "shim/cli/warmup/background_child.h"
#include "shim/cli/warmup/load.h"
#include "shim/cli/warmup/metadata_load.h"
#include "shim/cli/warmup/survey.h"
#include "shim/cli/warmup/warmup_report.h"
#include "shim/cli/warmup/warmup_target.h"

namespace cube::cli {
namespace {

constexpr int k_no_cache = 3;

struct Warmup {
  Settings settings;
  NamedInput input;
  bool check = false, dry_run = false, evict = false, names = false, to_cluster = false,
       background = false, json = false;
  // True if the command loads nothing and makes no cache.
  bool only_looks() const { return check || dry_run || evict; }
  ProgressOptions progress;
};

// Returns the prefixes. If no prefix is set, returns a prefix that covers every path.
std::vector<std::string> prefixes_or_all(const base::Config& config) {
  return config.prefixes.empty() ? std::vector<std::string>{""} : config.prefixes;
}

void look(const Warmup& warmup, WarmupTarget& target, NamedPaths& paths, Skipped& skipped,
          WarmupReport& report) {
  Progress progress(warmup.progress);
  report.what = warmup.check   ? WarmupReport::What::check
                : warmup.evict ? WarmupReport::What::evict
                               : WarmupReport::What::dry_run;
  report.found = survey(
      paths,
      {target.cache, target.origins, target.parsed.config.max_file,
       target.parsed.config.block != 0 && target.parsed.config.mode == base::Mode::virtual_files,
       warmup.evict},
      skipped, progress);
}

// If progress is shown, starts `census`. Returns false if the list cannot be read.
bool begin_census(const Warmup& warmup, const Progress& progress, std::unique_ptr<Census>& census,
                  std::string& why) {
  if (!progress.is_shown()) return true;
  auto counted = NamedPaths::open(warmup.input, why);
  if (counted != nullptr) census = std::make_unique<Census>(std::move(counted));
  return census != nullptr;
}

bool fetch(const Warmup& warmup, WarmupTarget& target, NamedPaths& paths, Skipped& skipped,
           WarmupReport& report, std::string& why) {
  const base::Config& config = target.parsed.config;
  auto prefetcher =
      prefetch::Prefetcher::make(*target.cache,
                                 {.engine = config.io_engine,
                                  .depth = static_cast<unsigned>(config.prefetch_depth),
                                  .asks_for_blocks = true,
                                  .prefixes = config.prefixes},
                                 why);
  if (prefetcher == nullptr) return false;
  Progress progress(warmup.progress);
  std::unique_ptr<Census> census;
  if (!begin_census(warmup, progress, census, why)) return false;
  report.loaded = load(paths, *prefetcher, census.get(), skipped, progress);
  return true;
}

// Loads the metadata of the named directories.
void fetch_names(const Warmup& warmup, WarmupTarget& target, WarmupReport& report) {
  MetadataToLoad wanted;
  wanted.with_stats = warmup.names;
  const auto prefixes = prefixes_or_all(target.parsed.config);
  for (const auto& directory : warmup.input.directories) {
    const bool is_covered = std::ranges::any_of(
        prefixes, [&](const auto& p) { return p.empty() || base::is_at_or_below(directory, p); });
    if (is_covered) {
      wanted.roots.push_back(directory);
    } else if (warmup.names) {
      add_row(report.names.skipped,
              {.reason = "outside CUBESHIM_PREFIXES", .count = 1, .first = directory});
    }
  }
  Progress progress(warmup.progress);
  LoadedMetadata loaded = load_metadata(*target.cache, wanted, progress);
  for (auto& row : report.names.skipped) add_row(loaded.skipped, std::move(row));
  report.names = std::move(loaded);
}

bool may_load_names(const Warmup& warmup, const WarmupTarget& target, std::string& why) {
  if (!target.cache->metadata().is_on()) {
    why =
        "no metadata is cached with CUBESHIM_METADATA=0, CUBESHIM_PACKS, CUBESHIM_CONSISTENCY=open "
        "or CUBESHIM_MODE=real";
  } else if (warmup.input.directories.size() != warmup.input.paths.size()) {
    why = "--metadata-only takes only directories";
  }
  return why.empty();
}

void print_report(const Warmup& warmup, const WarmupReport& report) {
  if (warmup.json) {
    fmt::print("{}", report.json());
  } else {
    print_fitted(with_painted_lines(report.text(), {{"skipped:", Color::fair}}));
  }
}

int status_of(const WarmupReport& report) {
  if (report.signal != 0) return 128 + report.signal;
  const bool is_incomplete = report.what == WarmupReport::What::check && report.found.absent != 0;
  const bool lacks_names =
      report.what == WarmupReport::What::names && !report.names.skipped.empty();
  return report.skipped_files() != 0 || is_incomplete || lacks_names ? 1 : 0;
}

int warmup_here(Warmup& warmup, BackgroundChild* child) {
  if (warmup.input.paths.empty() && warmup.input.list.empty())
    return complain(2, "nothing to load: give paths of files or directories, or --filelist FILE");
  if (warmup.names && !warmup.input.list.empty())
    return complain(2, "--metadata-only takes directories, and no --filelist");
  WarmupTarget target = find_target(warmup.settings, warmup.only_looks());
  if (tell_errors(target.parsed)) return 2;
  // A command that only reports does not need a cache.
  if (target.cache == nullptr && (!warmup.only_looks() || target.is_broken))
    return complain(k_no_cache, target.why);
  std::string why;
  WarmupReport report;
  Skipped skipped;
  note_interrupts();
  const std::uint64_t began = base::monotonic_ns();
  std::unique_ptr<NamedPaths> paths;
  if (find_objects(target.parsed.config, warmup.input.paths, why) &&
      warmup.input.prepare(prefixes_or_all(target.parsed.config), why)) {
    for (auto& list : warmup.input.lists) list.origins = target.origins;
    paths = NamedPaths::open(warmup.input, why);
  }
  bool is_well = paths != nullptr;
  const bool is_refused = is_well && warmup.names && !may_load_names(warmup, target, why);
  is_well = is_well && !is_refused;
  if (is_well && child != nullptr) child->ready();
  if (is_well && warmup.only_looks()) {
    look(warmup, target, *paths, skipped, report);
  } else if (is_well && warmup.names) {
    report.what = WarmupReport::What::names;
    fetch_names(warmup, target, report);
  } else if (is_well) {
    is_well = fetch(warmup, target, *paths, skipped, report, why);
    if (is_well && target.cache->metadata().is_on() && interrupted_by() == 0)
      fetch_names(warmup, target, report);
  }
  if (target.cache != nullptr) {
    report.room = room_of(target.cache->region());
  } else if (warmup.dry_run) {
    report.room.capacity = expected_room(target.parsed.config);
  }
  const bool is_there = target.cache == nullptr || target.leave();
  if (!is_well) return complain(paths == nullptr || is_refused ? 2 : 1, why);
  report.seconds = static_cast<double>(base::monotonic_ns() - began) / 1e9;
  report.signal = interrupted_by();
  report.skipped = skipped.rows(*paths);
  print_report(warmup, report);
  std::fflush(stdout);
  if (!is_there)
    return complain(1,
                    "the job has ended, and the cache with it: --ram-keep 1 keeps it for the next");
  return status_of(report);
}

// Loads files into the servers of the cluster, without this node's cache.
int warmup_cluster(Warmup& warmup, BackgroundChild* child) {
  const auto parsed = warmup.settings.parse();
  if (tell_errors(parsed)) return 2;
  const base::Config& config = parsed.config;
  if (warmup.input.paths.empty() && warmup.input.list.empty())
    return complain(2, "nothing to load: give paths of files or directories, or --filelist FILE");
  if (config.cluster.texts.empty())
    return complain(2, "--to-cluster: CUBESHIM_CLUSTER names no servers");
  if (config.cluster_fill == 0)
    return complain(2, "--to-cluster: CUBESHIM_CLUSTER_FILL=0 lets this node only read");
  if (config.prefixes.empty())
    return complain(2,
                    "--to-cluster: CUBESHIM_PREFIXES is not set; the servers know a file by its "
                    "path below a prefix");
  note_interrupts();
  const std::uint64_t began = base::monotonic_ns();
  std::string why;
  std::unique_ptr<NamedPaths> paths;
  if (warmup.input.prepare(config.prefixes, why)) paths = NamedPaths::open(warmup.input, why);
  if (paths == nullptr) return complain(2, why);
  if (child != nullptr) child->ready();
  WarmupReport report;
  report.what = WarmupReport::What::cluster;
  Skipped skipped;
  {
    Progress progress(warmup.progress);
    std::unique_ptr<Census> census;
    if (!begin_census(warmup, progress, census, why)) return complain(2, why);
    const auto counts = load_to_cluster(config, *paths, census.get(), skipped, progress, why);
    if (!counts) return complain(1, why);
    report.cluster = *counts;
  }
  report.seconds = static_cast<double>(base::monotonic_ns() - began) / 1e9;
  report.signal = interrupted_by();
  report.skipped = skipped.rows(*paths);
  print_report(warmup, report);
  return status_of(report);
}

int warmup_as_asked(Warmup& warmup, BackgroundChild* child) {
  return warmup.to_cluster ? warmup_cluster(warmup, child) : warmup_here(warmup, child);
}

int warmup(Warmup& warmup) {
  if (!warmup.background) return warmup_as_asked(warmup, nullptr);
  BackgroundChild child;
  pid_t pid = 0;
  const auto status = child.split(pid);
  if (!status) return warmup_as_asked(warmup, &child);
  if (pid > 0)
    tell(
        "cubeshim: process {} loads in the background; cubeshim warmup --check says how far it "
        "is\n",
        pid);
  return *status;
}

}  // namespace

void add_warmup(CLI::App& app, int& status) {
  CLI::App* const command =
      app.add_subcommand("warmup", "Load files into the cache of a job, or into one that is kept");
  const auto options = std::make_shared<Warmup>();
  command->add_option("PATH", options->input.paths,
                      "Files, and directories with all below them; also the s3:// names "
                      "of those in a bucket of CUBESHIM_BUCKETS");
  add_value(*command, "--filelist", "FILE", options->input.list,
            "Load what this file lists, one path per line or NUL-separated; - is standard input");
  CLI::Option* const ways[] = {
      command->add_flag("--check", options->check, "Only say how much of it is cached"),
      command->add_flag("--dry-run", options->dry_run,
                        "Only say what would be fetched; it needs no job"),
      command->add_flag("--evict", options->evict,
                        "Forget what is cached of it, so that it is fetched again. It frees no "
                        "memory: forgotten files keep their room"),
      command->add_flag("--to-cluster", options->to_cluster,
                        "Fill the servers of CUBESHIM_CLUSTER instead of a cache of this node. "
                        "Nodes that do so at the same time share the work"),
      command->add_flag("--metadata-only", options->names,
                        "Load only metadata: the listings of these directories and of all below "
                        "them, and the stats of their entries")};
  for (std::size_t i = 1; i < std::size(ways); ++i) {
    for (std::size_t earlier = 0; earlier < i; ++earlier) ways[i]->excludes(ways[earlier]);
  }
  CLI::Option* const background =
      command->add_flag("--background", options->background,
                        "Go on in the background once the arguments have been checked; the summary "
                        "goes to standard output, unless that is a terminal");
  for (std::size_t i = 0; i < 3; ++i) background->excludes(ways[i]);
  command->add_flag("--json", options->json, "The summary as one JSON object");
  add_color_option(*command);
  add_progress_options(*command, options->progress);
  options->settings.add_to(*command, Settings::Which::all);
  command->callback([options, &status] { status = warmup(*options); });
}

}  // namespace cube::cli
