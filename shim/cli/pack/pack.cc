// cubeshim pack: makes one file from a directory tree, or from the files that a list names.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "cache/base/clock.h"
#include "cache/base/error_text.h"
#include "cache/base/path.h"
#include "cache/pack/make/pack_builder.h"
#include "prefetch/order/list_paths.h"
#include "shim/cli/bucket/bucket_packer.h"
#include "shim/cli/bucket/session.h"
#include "shim/cli/color.h"
#include "shim/cli/commands.h"
#include "shim/cli/complaint.h"
#include "shim/cli/interrupt.h"
#include "shim/cli/pack/pack_check.h"
#include "shim/cli/pack/pack_text.h"
#include "shim/cli/settings.h"
#include "shim/cli/shell/wrap.h"
#include "shim/cli/similar_path.h"
#include "shim/cli/warmup/census.h"
#include "shim/cli/warmup/progress.h"
#include "shim/cli/warmup/skipped.h"
#include "shim/cli/wrong_use.h"

namespace cube::cli {
namespace {

struct Pack {
  std::string directory, file, list;
  bool verify = false, json = false;
  unsigned jobs = 16;
  ProgressOptions progress;
};

struct Report {
  cache::PackHeader header{};
  std::uint64_t resumed = 0;
  std::vector<SkippedRow> skipped;
  double seconds = 0;

  std::uint64_t left_out() const {
    std::uint64_t sum = 0;
    for (const auto& row : skipped) sum += row.is_wanted ? 0 : row.count;
    return sum;
  }
  std::string text(const std::string& file) const {
    std::string text = fmt::format(
        "{}: {} ({}), {}, {} in {}", printable(file), counted(header.files, "file", "files"),
        in_units(header.data_bytes), counted(header.directories, "directory", "directories"),
        counted(header.links, "link", "links"), in_units(header.file_bytes));
    if (resumed != 0) text += fmt::format(", {} of them from an earlier run", resumed);
    text += fmt::format("; {} skipped; {:.1f} s\n", left_out(), seconds);
    for (const auto& row : skipped)
      text += fmt::format("{}: {} {}, the first is {}\n", row.is_wanted ? "left out" : "skipped",
                          row.count, row.reason, printable(row.first));
    return text;
  }
  std::string as_json(const std::string& file) const {
    nlohmann::ordered_json report = {{"pack", file},
                                     {"files", header.files},
                                     {"directories", header.directories},
                                     {"links", header.links},
                                     {"data_bytes", header.data_bytes},
                                     {"pack_bytes", header.file_bytes},
                                     {"index_bytes", header.index_bytes},
                                     {"resumed", resumed},
                                     {"seconds", seconds},
                                     {"skipped", left_out()}};
    report["reasons"] = nlohmann::ordered_json::array();
    for (const auto& row : skipped)
      report["reasons"].push_back({{"reason", row.reason},
                                   {"files", row.count},
                                   {"first", row.first},
                                   {"wanted", row.is_wanted}});
    return report.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  }
};

// An existing file may be replaced only if it is a pack.
bool may_be_written(const std::string& file, std::string& why) {
  if (file.empty() || file.ends_with('/')) {
    why = fmt::format("\"{}\" is not a name of a file", file);
    return false;
  }
  const auto stat = cache::stat_path(AT_FDCWD, file.c_str(), 0);
  if (!stat || (stat->is_regular() && stat->size == 0)) return true;
  if (cache::PackReader::open(file, why) != nullptr) return true;
  why = fmt::format("{} is there already and is not a whole pack: remove it, or give another name",
                    file);
  return false;
}

// If the directory as the user spelled it leads through links, returns this spelling, which a list
// may also use. Otherwise returns "".
std::string other_name_of(const std::string& root, const std::string& given) {
  char here[PATH_MAX], same[PATH_MAX];
  const char* const shell = std::getenv("PWD");
  for (const char* const base : {shell, static_cast<const char*>(getcwd(here, sizeof here))}) {
    std::string path;
    if (base == nullptr || prefetch::fold_path(base, given, path) != prefetch::Folded::ok ||
        path == root)
      continue;
    if (realpath(path.c_str(), same) != nullptr && root == same) return path;
  }
  return "";
}

// Reads the paths of the list, relative to the root.
bool take_list(const NamedInput& input, const std::vector<std::string>& roots,
               cache::TreePaths& paths, std::unique_ptr<NamedPaths>& named, std::string& why) {
  named = NamedPaths::open(input, why);
  if (named == nullptr) return false;
  prefetch::PlannedFile file;
  while (interrupted_by() == 0 && named->next(file)) {
    const std::string_view path = file.path;
    const auto root = std::find_if(roots.begin(), roots.end(),
                                   [&](const auto& r) { return base::is_at_or_below(path, r); });
    const std::size_t skipped = root == roots.end() ? 1 : root->size() + 1;
    paths.add(path.size() > skipped ? path.substr(skipped) : std::string_view());
  }
  paths.sort();
  return true;
}

int end_of(const Pack& pack, cache::PackBuilder::End end, const std::string& why) {
  if (end == cache::PackBuilder::End::failed) return complain(1, why);
  if (end == cache::PackBuilder::End::stopped)
    return complain(128 + interrupted_by(),
                    fmt::format("interrupted: the same command continues {}.partial", pack.file));
  return 0;
}

int verify(const Pack& pack) {
  std::string why;
  const auto reader = cache::PackReader::open(pack.file, why);
  if (reader == nullptr) return complain(1, why);
  Progress progress(pack.progress);
  const PackFindings found = check_pack(*reader, {}, progress);
  progress.clear();
  if (found.was_interrupted)
    return complain(128 + interrupted_by(), "interrupted: the pack is whole, but not verified");
  for (const auto& line : found.first) complain(1, line);
  return found.problems == 0 ? 0 : 1;
}

// Verifies the pack if the user requested it, and prints the report.
int end_well(const Pack& pack, Report& report, std::uint64_t began) {
  const int status = pack.verify ? verify(pack) : 0;
  report.seconds = static_cast<double>(base::monotonic_ns() - began) / 1e9;
  if (pack.json) {
    fmt::print("{}", report.as_json(pack.file));
  } else {
    print_fitted(with_painted_lines(report.text(pack.file),
                                    {{"skipped:", Color::fair}, {"left out:", Color::fair}}));
  }
  std::fflush(stdout);
  return status != 0 ? status : report.left_out() != 0 ? 1 : 0;
}

cache::PackBuild build_of(const Pack& pack, Report& report) {
  cache::PackBuild build;
  build.file = pack.file;
  build.threads = pack.jobs;
  if (const char* const scratch = std::getenv("TMPDIR"); scratch != nullptr)
    build.scratch = scratch;
  build.skipped = [&report](cache::PackSkip reason, std::string_view path, int error) {
    std::string first = shown(path);
    if (error != 0) first += fmt::format(": {}", base::text_of_error(error));
    add_row(report.skipped, {std::string(cache::name_of(reason)), 1, first, false});
  };
  return build;
}

int pack_objects(const Pack& pack) {
  const auto name = s3::parse_s3_uri(pack.directory);
  if (!name) return complain(2, pack.directory + " is not of the form s3://BUCKET/PREFIX");
  if (!pack.list.empty()) return complain(2, "--list takes a directory, not a bucket");
  std::string why;
  if (!may_be_written(pack.file, why)) return complain(1, why);
  const auto session = BucketSession::open();
  if (session == nullptr) return 1;
  note_interrupts();
  const std::uint64_t began = base::monotonic_ns();
  Progress progress(pack.progress);
  Report report;
  cache::PackBuild build = build_of(pack, report);
  s3::ObjectName prefix = *name;
  while (prefix.key.ends_with('/')) prefix.key.pop_back();
  build.root = fmt::format("s3://{}{}{}", prefix.bucket, prefix.key.empty() ? "" : "/", prefix.key);
  const BucketPacker* packer = nullptr;
  build.go_on = [&](const cache::PackHeader& so_far) {
    progress.show({.files = so_far.files,
                   .bytes = so_far.data_bytes,
                   .total_files = packer->objects(),
                   .is_total_final = so_far.files != 0});
    return interrupted_by() == 0;
  };
  BucketPacker made(session->client, prefix, build);
  packer = &made;
  const auto end = made.run(why);
  progress.clear();
  if (end != cache::PackBuilder::End::done) return end_of(pack, end, printable(why));
  report.header = made.header();
  report.resumed = made.resumed();
  return end_well(pack, report, began);
}

int pack(const Pack& pack) {
  if (s3::is_s3_uri(pack.directory)) return pack_objects(pack);
  char root[PATH_MAX];
  if (realpath(pack.directory.c_str(), root) == nullptr) {
    const int error = errno;
    return complain(1, fmt::format("cannot read {}: {}{}", pack.directory,
                                   base::text_of_error(error), path_hint(pack.directory, error)));
  }
  std::string why;
  if (!may_be_written(pack.file, why)) return complain(1, why);
  note_interrupts();
  const std::uint64_t began = base::monotonic_ns();
  NamedInput input;
  input.list = pack.list;
  std::vector<std::string> prefixes{std::strcmp(root, "/") == 0 ? "" : root};
  if (auto other = other_name_of(root, pack.directory); !pack.list.empty() && !other.empty())
    prefixes.push_back(std::move(other));
  if (pack.list.empty()) input.paths = {root};
  if (!input.prepare(prefixes, why)) return complain(2, why);
  cache::TreePaths paths;
  std::unique_ptr<NamedPaths> named;
  if (!pack.list.empty()) {
    for (auto& list : input.lists) {
      list.look_at_each = true;
      list.directory = root;
    }
    if (!take_list(input, prefixes, paths, named, why)) return complain(2, why);
    if (interrupted_by() != 0) return complain(128 + interrupted_by(), "interrupted");
  }
  Progress progress(pack.progress);
  std::unique_ptr<Census> census;
  if (progress.is_shown() && pack.list.empty()) {
    if (auto counted = NamedPaths::open(input, why))
      census = std::make_unique<Census>(std::move(counted));
  }
  Report report;
  cache::PackBuild build = build_of(pack, report);
  build.root = root;
  build.list = pack.list.empty() ? nullptr : &paths;
  build.go_on = [&](const cache::PackHeader& so_far) {
    Tally tally{.files = so_far.files + so_far.links, .bytes = so_far.data_bytes};
    if (census != nullptr) tally.total_files = census->files();
    tally.is_total_final = census != nullptr && census->is_over();
    if (!pack.list.empty()) {
      tally.total_files = paths.size();
      tally.is_total_final = true;
    }
    progress.show(tally);
    return interrupted_by() == 0;
  };
  cache::PackBuilder builder(build);
  const auto end = builder.run(why);
  progress.clear();
  if (end != cache::PackBuilder::End::done) return end_of(pack, end, why);
  if (named != nullptr) {
    for (auto& row : Skipped().rows(*named)) {
      // The pack command has no prefixes, so name the directory instead.
      if (row.reason == prefetch::Refusals::name_of(prefetch::Refusal::outside))
        row.reason = "outside " + pack.directory;
      add_row(report.skipped, std::move(row));
    }
  }
  report.header = builder.header();
  report.resumed = builder.resumed();
  return end_well(pack, report, began);
}

}  // namespace

void add_pack(CLI::App& app, int& status) {
  CLI::App* const command =
      app.add_subcommand("pack", "Make one file of a directory of many small files");
  const auto options = std::make_shared<Pack>();
  command
      ->add_option("DIRECTORY", options->directory,
                   "What is packed, with all below it: a directory, or s3://BUCKET/PREFIX")
      ->required();
  command
      ->add_option("FILE", options->file,
                   "The pack. After an interrupted run, the same command continues FILE.partial "
                   "beside it")
      ->required();
  add_value(*command, "--list", "FILE", options->list,
            "Pack only what this file lists, one path per line or NUL-separated; - is "
            "standard input. Relative paths are below DIRECTORY. A directory stands for the "
            "files below it; directories without files are left out");
  command->add_flag("--verify", options->verify,
                    "Read the pack again when it is made, and check all of it");
  add_value(*command, "--jobs", "NUMBER", options->jobs,
            "Files that are read at the same time; the default is 16")
      ->check(whole_number(1, 256));
  command->add_flag("--json", options->json, "The summary as one JSON object");
  add_color_option(*command);
  add_progress_options(*command, options->progress);
  command->callback([options, &status] { status = pack(*options); });
}

}  // namespace cube::cli
