// Plays random sequences of file operations natively and under the library, and requires that both
// give the same results.
//
//   differ [--seconds N] [--seeds N] [--seed FIRST] [--mode SUBJECT]... [--cases FILE]
//          [--dir TMPFS] [--keep-going] [--large | --bucket]
//
// With --large, some files have 20 to 60 MB. The subjects serve these files in blocks of several
// sizes; one subject serves them from a disk. Subjects whose names end in -pack serve trees of a
// pack. They are compared with the same trees on a read-only mount, which needs root. The other
// subjects change trees on the disk. With --bucket, the trees are in a bucket, and its gateway uses
// directories as buckets.
//
// If a seed differs, the shortest case that still differs is printed. It can be pasted into
// regressions.txt.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>

#include "tests/differential/arena.h"
#include "tests/differential/cases.h"
#include "tests/differential/generate.h"
#include "tests/differential/reader.h"
#include "tests/differential/shrink.h"
#include "tests/differential/worker.h"

namespace cube::differ {
namespace {

struct Options {
  double seconds = 0;
  std::uint64_t seeds = 0, first = 0;
  std::vector<std::string> subjects;
  std::string cases, dir = "/dev/shm";
  bool keeps_going = false, is_verbose = false;
};

[[noreturn]] void usage() {
  std::fprintf(stderr,
               "differ [--seconds N] [--seeds N] [--seed FIRST] [--mode SUBJECT]...\n"
               "       [--cases FILE] [--dir TMPFS] [--keep-going] [--large | --bucket]\n"
               "SUBJECT: virtual, real, virtual-open, virtual-ttl, real-open, virtual-blocks, "
               "virtual-pack, real-pack\n"
               "or with --large: large-4k, large-64k, large-1m, large-disk\n"
               "or with --bucket: virtual-bucket, open-bucket, blocks-bucket, real-bucket\n");
  std::exit(2);
}

Options parse(int argc, char** argv) {
  Options options;
  bool has_first = false;
  const auto number = [](const char* text) { return std::strtoull(text, nullptr, 0); };
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--keep-going") {
      options.keeps_going = true;
      continue;
    }
    if (name == "--large" || name == "--bucket") {
      setenv(name == "--large" ? k_large_variable : k_bucket_variable, "1", 1);
      continue;
    }
    if (i + 1 == argc) usage();
    const char* const value = argv[++i];
    if (name == "--seconds") {
      options.seconds = std::atof(value);
    } else if (name == "--seeds") {
      options.seeds = number(value);
    } else if (name == "--seed") {
      options.first = number(value);
      has_first = true;
    } else if (name == "--mode") {
      options.subjects.emplace_back(value);
    } else if (name == "--cases") {
      options.cases = value;
    } else if (name == "--dir") {
      options.dir = value;
    } else {
      usage();
    }
  }
  if (const char* const seed = getenv("DIFFER_SEED"); seed != nullptr && !has_first) {
    options.first = number(seed);
    has_first = true;
  }
  if (!has_first)
    options.first = static_cast<std::uint64_t>(std::time(nullptr)) % 100'000'000 * 1000;
  // --seed without other limits plays only that seed.
  if (options.seconds == 0 && options.seeds == 0 && options.cases.empty()) options.seeds = 1;
  return options;
}

constexpr unsigned k_more_turns = 6;

class Driver {
 public:
  Driver(Options options, const std::string& base)
      : options_(std::move(options)), arena_(base, options_.subjects) {}

  int run() {
    if (!options_.cases.empty()) play_cases();
    if (options_.seconds > 0 || options_.seeds > 0) play_seeds(options_.first);
    // On a busy machine, blocks can reach the disk only after their last read. So more sequences
    // follow.
    for (unsigned turn = 1; turn <= k_more_turns && failures_ == 0 && awaits_disk(); ++turn)
      play_seeds(options_.first + turn * options_.seeds);
    summarise();
    return failures_ == 0 ? 0 : 1;
  }

 private:
  void play_cases() {
    const std::vector<Case> cases = read_cases(options_.cases);
    for (const Case& c : cases) {
      for (std::size_t i = 0; i < arena_.contenders().size(); ++i) {
        const Arena::Contender& contender = arena_.contenders()[i];
        // A case without an outsider can be played by all subjects whose trees are not in packs.
        const auto fits = [&](const Run& run) {
          return contender.plays(run.kind) || (run.kind == Kind::usual && !contender.has_pack());
        };
        if (!std::ranges::all_of(c.runs, fits)) continue;
        Difference difference;
        if (arena_.differs(i, c.runs, true, difference)) say(c.name, i, c, difference);
      }
    }
    std::printf("differ: %zu cases of %s played, %u differ\n", cases.size(), options_.cases.c_str(),
                failures_);
  }

  // Returns true if another batch of --seeds sequences should follow. With --seconds, there is only
  // one batch.
  bool awaits_disk() {
    if (options_.seeds == 0) return false;
    arena_.stop();
    return std::ranges::any_of(arena_.contenders(), [](const Arena::Contender& contender) {
      return contender.subject->settings().has_disk && contender.subject->totals().block_disk == 0;
    });
  }

  void play_seeds(std::uint64_t first) {
    using Clock = std::chrono::steady_clock;
    std::printf("differ: seeds from %llu (DIFFER_SEED or --seed set the first)\n",
                (unsigned long long)first);
    std::fflush(stdout);
    const auto end = Clock::now() + std::chrono::duration<double>(options_.seconds);
    for (std::uint64_t n = 0; options_.seeds != 0 ? n < options_.seeds : Clock::now() < end; ++n) {
      const std::uint64_t seed = first + n;
      const Kind kind = arena_.kind_of(seed);
      const Sequence sequence = generate(seed, kind);
      ++sequences_;
      operations_ += sequence.size();
      const auto findings = arena_.play(sequence, kind, is_kept_turn(seed, kind));
      if (findings.empty()) continue;
      explain(seed, findings.front());
      if (!options_.keeps_going) break;
    }
  }

  void explain(std::uint64_t seed, const Arena::Finding& finding) {
    const std::string name = "seed-" + std::to_string(seed);
    Case c{name, {finding.runs.back()}};
    const std::size_t who = finding.contender;
    Difference difference = finding.difference;
    if (!arena_.is_deterministic(c.runs.back(), difference)) {
      std::printf("differ: %s: two plain runs differ: an operation is not deterministic\n",
                  name.c_str());
      return say(name, who, c, difference);
    }
    std::printf("differ: %s differs in %s, %s; looking for the shortest case\n", name.c_str(),
                subject(who).settings().name.c_str(),
                std::string(name_of(c.runs.back().pass)).c_str());
    std::fflush(stdout);
    Difference found;
    // With threads and timers, several tries can be necessary.
    tries_ = 1;
    if (!differs(who, c.runs, true, found)) {
      // The difference depends on earlier runs in the same process.
      c.runs = finding.runs;
      if (!differs(who, c.runs, true, found)) {
        c.runs = {finding.runs.back()};
        tries_ = 20;
        if (!differs(who, c.runs, true, found)) {
          std::printf("differ: %s differed once and not again:\n", name.c_str());
          return say(name, who, c, difference);
        }
      }
    }
    if (c.runs.size() > 1) {
      const Run last = c.runs.back();
      c.runs.pop_back();
      c.runs = shrink<Run>(c.runs, [&](const std::vector<Run>& runs) {
        std::vector<Run> all = runs;
        all.push_back(last);
        return differs(who, all, true, found);
      });
      c.runs.push_back(last);
    }
    for (std::size_t i = c.runs.size(); i-- > 0;) {
      const auto fails = [&](const Sequence& sequence) {
        std::vector<Run> runs = c.runs;
        runs[i].sequence = sequence;
        return differs(who, runs, false, found);
      };
      c.runs[i].sequence = plainer(shrink<Op>(c.runs[i].sequence, fails), fails);
    }
    if (differs(who, c.runs, true, found)) difference = found;
    say(name, who, c, difference);
  }

  bool differs(std::size_t who, const std::vector<Run>& runs, bool fresh, Difference& difference) {
    for (unsigned n = 0; n < tries_; ++n) {
      if (arena_.differs(who, runs, fresh && n == 0, difference)) return true;
    }
    return false;
  }

  void say(const std::string& name, std::size_t who, const Case& c, const Difference& difference) {
    ++failures_;
    std::printf("differ: FAILED: %s in %s\n%s%s  plain:   %s\n  library: %s\n\n", name.c_str(),
                subject(who).settings().name.c_str(), to_text(c).c_str(), difference.before.c_str(),
                difference.plain.c_str(), difference.subject.c_str());
    std::fflush(stdout);
  }

  Subject& subject(std::size_t i) { return *arena_.contenders()[i].subject; }

  void summarise() {
    std::printf(
        "differ: %zu sequences of %zu operations, each in a plain run; %zu runs under the library; "
        "%u differ\n",
        sequences_, operations_, arena_.runs(), failures_);
    arena_.stop();
    for (auto& contender : arena_.contenders()) {
      const Totals& totals = contender.subject->totals();
      if (totals.workers == 0) continue;
      const Settings& settings = contender.subject->settings();
      std::printf(
          "differ: %s: %lu hits, %lu misses, %lu made real, %lu found no room, %lu workers\n",
          settings.name.c_str(), totals.hits, totals.misses, totals.materialized, totals.full,
          totals.workers);
      if (has_large_files())
        std::printf("differ: %s: %lu reads in blocks from memory, %lu MiB from the disk\n",
                    settings.name.c_str(), totals.block_reads, totals.block_disk >> 20);
      const bool has_no_blocks =
          has_large_files() &&
          (totals.block_reads == 0 || (settings.has_disk && totals.block_disk == 0));
      if (has_no_blocks) {
        std::printf("differ: FAILED: %s\n",
                    totals.block_reads == 0 ? "no read was from memory" : "none was from the disk");
        ++failures_;
      }
      // Without hits, the kernel was only compared with itself. With a disk, it is normal that some
      // files find no room.
      if (totals.hits != 0 && (totals.full == 0 || settings.has_disk)) continue;
      std::printf("differ: FAILED: %s\n",
                  totals.hits == 0 ? "no open was a hit" : "the region was too small for the runs");
      ++failures_;
    }
  }

  Options options_;
  Arena arena_;
  std::size_t sequences_ = 0, operations_ = 0;
  unsigned failures_ = 0, tries_ = 1;
};

int drive(int argc, char** argv) {
  Options options = parse(argc, argv);
  signal(SIGPIPE, SIG_IGN);
  std::string base = options.dir + "/cubeshim-differ-XXXXXX";
  if (mkdtemp(base.data()) == nullptr) return std::perror("mkdtemp"), 2;
  const int result = Driver(std::move(options), base).run();
  std::error_code error;
  std::filesystem::remove_all(base, error);
  return result;
}

}  // namespace
}  // namespace cube::differ

int main(int argc, char** argv) {
  using namespace cube::differ;
  if (argc == 2 && std::strcmp(argv[1], k_worker_flag) == 0) return run_worker();
  if (argc == 4 && std::strcmp(argv[1], k_reader_flag) == 0)
    return run_reader(std::atoi(argv[2]), std::strtoul(argv[3], nullptr, 10));
  return drive(argc, argv);
}
