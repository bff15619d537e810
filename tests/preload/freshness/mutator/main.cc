// Changes a tree repeatedly without the library. Meanwhile, readers under the library read the tree
// through mounts for which the kernel keeps names and stats for 0, 1 or 30 seconds. The promise of
// the reader's mode must permit each answer (judge.h). To test the judge, too, one reader for each
// of these timeouts runs without the library and gets the same questions.
//
//   mutator [--seed N] [--steps N] [--jobs N] [--only TEXT]... [--most N] [--dir DIR]
//
// Each step asks all readers one question. --jobs is the mean number of steps of a job. --only
// selects the readers whose names (MODE/TIMEOUT/STORE) begin with TEXT. --most drops a reader after
// that many wrong answers. The seed determines all questions and changes, but not their times. So a
// failure is printed together with the history of its path, and several runs may be necessary to
// reproduce it.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <deque>
#include <filesystem>

#include "tests/preload/freshness/mutator/mutations.h"
#include "tests/preload/freshness/mutator/subject.h"

namespace cube::mutator {
namespace {

// Paths through symbolic links, through a hard link, and with unusual spellings.
constexpr const char* k_by_way[] = {"current/f", "current/g",   "d1/link",   "d2/link",
                                    "v1/f",      "d1/../d2/f1", "d3//./hard"};
constexpr std::uint64_t k_chunks[] = {4000, 65536, 1 << 20, 1 << 20};

struct Options {
  std::uint64_t seed = 0, steps = 10'000, most = 5, steps_of_job = 400;
  std::vector<std::string> only;
  std::string dir = "/var/tmp";
};

[[noreturn]] void usage() {
  std::fprintf(stderr,
               "mutator [--seed N] [--steps N] [--jobs N] [--only TEXT]... [--most N] [--dir DIR]\n"
               "TEXT: the begin of MODE/TIMEOUT/STORE, such as open/30/fresh, ttl:1/1/kept or "
               "immutable/0/disk\n");
  std::exit(2);
}

Options parse(int argc, char** argv) {
  Options options;
  options.seed = static_cast<std::uint64_t>(std::time(nullptr));
  for (int i = 1; i < argc; i += 2) {
    if (i + 1 == argc) usage();
    const std::string name = argv[i], value = argv[i + 1];
    const std::map<std::string, std::uint64_t*> numbers = {{"--seed", &options.seed},
                                                           {"--steps", &options.steps},
                                                           {"--most", &options.most},
                                                           {"--jobs", &options.steps_of_job}};
    if (const auto number = numbers.find(name); number != numbers.end()) {
      *number->second = std::strtoull(value.c_str(), nullptr, 0);
    } else if (name == "--only") {
      options.only.push_back(value);
    } else if (name == "--dir") {
      options.dir = value;
    } else {
      usage();
    }
  }
  if (options.steps_of_job == 0) usage();
  return options;
}

// Keeps the last few paths.
class Recent {
 public:
  void add(const std::string& path) {
    paths_.push_back(path);
    if (paths_.size() > k_most) paths_.pop_front();
  }
  std::string pick(Random& random) const {
    return paths_.empty() ? "d0/f0" : one_of(random, paths_);
  }

 private:
  static constexpr std::size_t k_most = 10;
  std::deque<std::string> paths_;
};

// By how much the kernel's clocks can start late. The kernel keeps a name for a second from the
// time at which it receives the mount's answer. On a busy machine, this is some time after the
// answer was true, but not later than the end of the call that received the answer.
class Slack {
 public:
  void note(const Answer& answer) {
    const std::int64_t second = answer.end / k_second, took = answer.end - answer.begin;
    if (longest_.empty() || longest_.back().first < second) longest_.emplace_back(second, 0);
    longest_.back().second = std::max(longest_.back().second, took);
    while (longest_.front().first < second - k_memory_s) longest_.pop_front();
  }
  std::int64_t ns() const {
    std::int64_t longest = 0;
    for (const auto& [second, took] : longest_) longest = std::max(longest, took);
    return k_tick + 2 * longest;
  }

 private:
  static constexpr std::int64_t k_second = 1'000'000'000, k_tick = 30'000'000, k_memory_s = 35;
  std::deque<std::pair<std::int64_t, std::int64_t>> longest_;  // of each second
};

class Driver {
 public:
  Driver(const Options& options, const std::string& base)
      : options_(options),
        random_(options.seed),
        world_(base),
        mutations_(world_, random_),
        base_(base) {
    mutations_.make_tree();
    for (const Promise promise :
         {Promise::kernel, Promise::open, Promise::ttl_1, Promise::immutable}) {
      for (const int timeout : {0, 1, 30}) {
        for (const Store store : {Store::fresh, Store::kept, Store::disk}) {
          const Setting setting{promise, timeout, store};
          const std::string name = setting.name();
          const bool is_wanted =
              options.only.empty() || promise == Promise::kernel ||
              std::any_of(options.only.begin(), options.only.end(),
                          [&](const auto& each) { return name.starts_with(each); });
          if (is_wanted && (promise != Promise::kernel || store == Store::fresh)) {
            subjects_.push_back(std::make_unique<Subject>(world_, setting, base));
          }
        }
      }
    }
    world_.set_hold_mounts([this](bool holds) {
      for (const auto& subject : subjects_) subject->hold_mount(holds);
    });
  }

  int run() {
    std::printf("mutator: seed %lu, %lu steps, %zu readers\n", options_.seed, options_.steps,
                subjects_.size());
    std::fflush(stdout);
    for (step_ = 1; step_ <= options_.steps && !subjects_.empty(); ++step_) {
      // Each step has its own random numbers, so that an additional or missing reader does not
      // affect the other readers.
      random_.seed(options_.seed * 1'000'003 + step_);
      step();
    }
    summarise();
    return failures_ == 0 ? 0 : 1;
  }

 private:
  void step() {
    for (std::size_t i = 0; i < subjects_.size(); ++i) {
      // Jobs end at different steps, except those of plain readers, for which jobs have no meaning.
      if (Random(options_.seed + step_ * 1'000 + i)() % options_.steps_of_job != 0 ||
          subjects_[i]->is_plain())
        continue;
      subjects_[i]->end_job();
      subjects_[i]->begin_job();
    }
    const Ask ask = next_question();
    const bool changes = below(random_, 8) == 0, overlaps = below(random_, 3) == 0;
    if (changes && !overlaps) change();
    std::vector<Subject*> asked;
    for (const auto& subject : subjects_) {
      if (ask.is_of_kept() && !subject->judge().has_kept(ask.slot)) continue;
      subject->ask(ask);
      asked.push_back(subject.get());
    }
    if (changes && overlaps) {
      world_.set_watched(true);
      change();
      world_.set_watched(false);
    }
    // Collects all answers before the first verdict, so that nothing keeps the readers waiting.
    std::vector<Answer> answers(asked.size());
    for (std::size_t i = 0; i < asked.size(); ++i) {
      if (asked[i]->take(answers[i])) slack_.note(answers[i]);
    }
    log("step " + std::to_string(step_) + ": " + ask.text());
    const std::int64_t slack_ns = slack_.ns();
    for (std::size_t i = 0; i < asked.size(); ++i) {
      ++answers_;
      const std::string wrong = answers[i].kind == '?'
                                    ? "no answer"
                                    : asked[i]->judge().verdict(ask, answers[i], slack_ns);
      if (!wrong.empty()) explain(*asked[i], ask, answers[i], wrong);
    }
    std::erase_if(subjects_, [&](const auto& subject) {
      const bool is_over = wrong_of_[subject->name()] >= options_.most;
      if (is_over) subject->end_job();
      return is_over;
    });
  }

  void change() {
    const Mutations::Change done =
        mutations_.change(below(random_, 2) == 0 ? asked_.pick(random_) : "");
    changed_.add(done.path);
    ++changes_;
    log("step " + std::to_string(step_) + ": CHANGE " + done.path + ": " + done.what);
  }

  std::string pick_path() {
    const std::uint64_t dice = below(random_, 100);
    if (dice < 45) return changed_.pick(random_);
    if (dice < 75) return asked_.pick(random_);
    if (dice < 82) return one_of(random_, k_by_way);
    if (dice < 90)
      return "d" + std::to_string(below(random_, 6)) + "/x" + std::to_string(below(random_, 4));
    return one_of(random_, all_paths(world_));
  }

  Ask next_question() {
    Ask ask{.path = pick_path()};
    const std::uint64_t dice = below(random_, 100);
    const std::string directory = ask.path.substr(0, std::min(ask.path.find('/'), ask.path.size()));
    if (dice < 26) {
      ask.what = "read";
      ask.chunk = one_of(random_, k_chunks);
    } else if (dice < 34) {
      ask.what = "pread";
    } else if (dice < 38) {
      ask.what = "stream";
    } else if (dice < 43) {
      ask.what = "map";
    } else if (dice < 54) {
      ask.what = "stat";
    } else if (dice < 60) {
      ask.what = "lstat";
    } else if (dice < 68) {
      ask.what = "access";
    } else if (dice < 71) {
      ask.what = "readlink";
    } else if (dice < 74) {
      ask.what = "realpath";
    } else if (dice < 80) {
      ask.what = "list";
      ask.path = below(random_, 8) == 0 ? "." : directory;
    } else if (dice < 84) {
      ask.what = "scan";
      ask.path = directory;
    } else if (dice < 88) {
      ask.what = "keep";
      ask.slot = ++last_slot_;
      kept_[ask.slot] = ask.path;
    } else {
      ask.what = dice < 95 ? "kept-read" : dice < 98 ? "kept-stat" : "drop";
      ask.slot = last_slot_ - below(random_, std::min<std::uint64_t>(last_slot_, 6) + 1);
      ask.path = kept_[ask.slot];
    }
    if (ask.what == "pread" || ask.what == "kept-read") {
      ask.first = below(random_, 4) == 0 ? below(random_, 150'000) : below(random_, 1500);
      ask.words = 1 + below(random_, below(random_, 4) == 0 ? 20'000 : 1000);
    }
    if (!ask.is_of_kept()) asked_.add(ask.path);
    return ask;
  }

  void log(std::string line) {
    log_.push_back(std::move(line));
    if (log_.size() > 400) log_.pop_front();
  }

  void explain(Subject& subject, const Ask& ask, const Answer& answer, const std::string& wrong) {
    ++failures_;
    ++wrong_of_[subject.name()];
    std::printf("mutator: WRONG: seed %lu, step %lu, %s\n  asked: %s\n  answer: %.300s\n  %s\n",
                options_.seed, step_, subject.name().c_str(), ask.text().c_str(),
                answer.text.c_str(), wrong.c_str());
    std::printf("  the job began %.1f ms before the question, which took %.1f ms\n%s",
                static_cast<double>(answer.begin - subject.judge().job_begin()) / 1e6,
                static_cast<double>(answer.end - answer.begin) / 1e6,
                subject.judge().history(ask, answer).c_str());
    const std::string part = ask.path.substr(ask.path.rfind('/') + 1);
    for (const auto& line : log_) {
      if (line.find("CHANGE") != std::string::npos || line.find(part) != std::string::npos)
        std::printf("    %s\n", line.c_str());
    }
    std::fflush(stdout);
  }

  void summarise() {
    std::printf("mutator: %lu steps, %lu answers, %lu changes, %lu wrong\n", step_ - 1, answers_,
                changes_, failures_);
    for (const auto& subject : subjects_) {
      subject->end_job();
      const auto& totals = subject->totals();
      const auto sum = [&](const char* name) {
        return totals.contains(name) ? totals.at(name) : 0.0;
      };
      if (subject->is_plain()) continue;
      std::printf(
          "mutator: %-18s hits %.0f, of the disk %.0f, misses %.0f, in blocks %.0f; names: stats "
          "%.0f, absent %.0f, listings "
          "%.0f\n",
          subject->name().c_str(), sum("hits.ram"), sum("hits.disk"), sum("misses"),
          sum("blocks.hits"), sum("metadata.stats"), sum("metadata.negative"),
          sum("metadata.listings"));
      // Without hits, only the kernel's answers were tested.
      if (sum("hits.ram") == 0) {
        std::printf("mutator: FAILED: %s: no open was a hit\n", subject->name().c_str());
        ++failures_;
      }
    }
  }

  const Options options_;
  Random random_;
  World world_;
  Mutations mutations_;
  const std::string base_;
  std::vector<std::unique_ptr<Subject>> subjects_;
  Recent asked_, changed_;
  Slack slack_;
  std::deque<std::string> log_;
  std::map<std::uint64_t, std::string> kept_;  // the path of each kept file, by its slot
  std::map<std::string, std::uint64_t> wrong_of_;
  std::uint64_t step_ = 0, last_slot_ = 0, answers_ = 0, changes_ = 0, failures_ = 0;
};

int drive(int argc, char** argv) {
  const Options options = parse(argc, argv);
  signal(SIGPIPE, SIG_IGN);
  std::string base = options.dir + "/cubeshim-mutator-XXXXXX";
  if (mkdtemp(base.data()) == nullptr) return std::perror("mkdtemp"), 2;
  const int result = Driver(options, base).run();
  std::error_code error;
  std::filesystem::remove_all(base, error);
  return result;
}

}  // namespace
}  // namespace cube::mutator

int main(int argc, char** argv) { return cube::mutator::drive(argc, argv); }
