#include "tests/differential/arena.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

namespace cube::differ {
namespace {

constexpr unsigned k_runs_of_worker = 90;  // the records of all their trees have room in the region

bool find_difference(std::string_view plain, std::string_view subject, Difference& difference) {
  // The model's word counts, also where both are wrong.
  if (plain == subject && subject.find("model: wrong") == std::string_view::npos) return false;
  std::size_t at = 0;
  while (true) {
    const auto line = [at](std::string_view text) {
      return at >= text.size() ? std::string_view("(nothing more)") : text.substr(at, text.find('\n', at) - at);
    };
    const std::string_view a = line(plain), b = line(subject);
    if (a == b && at < plain.size() && a.find("model: wrong") == std::string_view::npos) {
      at += a.size() + 1;
      continue;
    }
    difference = {std::string(a), std::string(b), std::string(plain.substr(0, std::min(at, plain.size())))};
    return true;
  }
}

}  // namespace

std::string_view name_of(Pass pass) { return pass == Pass::cold ? "cold" : pass == Pass::warm ? "warm" : "kept"; }

Arena::Arena(const std::string& base, const std::vector<std::string>& names) : base_(base) {
  for (const char* const part : {"/plain", "/cover", "/other"}) std::filesystem::create_directories(base + part);
  plain_ = std::make_unique<Subject>(Settings{.name = "plain", .mode = "", .cache = "", .base = base});
  const std::vector<Settings> all = {
      {.name = "virtual", .mode = "virtual", .cache = "", .base = base},
      {.name = "real", .mode = "real", .cache = "", .base = base},
      {.name = "virtual-open", .mode = "virtual", .consistency = "open", .cache = "", .base = base},
      {.name = "virtual-ttl", .mode = "virtual", .consistency = "ttl:0", .cache = "", .base = base},
      {.name = "real-open", .mode = "real", .consistency = "open", .cache = "", .base = base}};
  for (Settings settings : all) {
    if (!names.empty() && std::find(names.begin(), names.end(), settings.name) == names.end()) continue;
    settings.cache = "differ-" + std::to_string(getpid()) + "-" + settings.name;
    Contender contender;
    contender.sees_outsider = settings.consistency != "immutable";
    contender.subject = std::make_unique<Subject>(settings);
    settings.name += "-warmer";
    contender.warmer = std::make_unique<Subject>(settings);
    contenders_.push_back(std::move(contender));
  }
}

Arena::~Arena() {
  for (Contender& contender : contenders_) restart(contender);
}

void Arena::restart(Contender& contender) {
  contender.subject->stop();
  contender.warmer->stop();
  contender.history.clear();
}

Tree Arena::fresh_tree(const Subject& subject) {
  // Names of one length: that of a path can be seen.
  const std::string name = "/t" + std::to_string(1'000'000 + trees_++);
  const Tree tree{base_ + (subject.is_plain() ? "/plain" : "/cover") + name + "/r", base_ + "/other" + name + "/r"};
  make_tree(tree);
  return tree;
}

void Arena::send(Contender& contender, Pass pass, const Sequence& sequence, Tree& tree) {
  if (contender.subject->played() == 0 || contender.subject->played() >= k_runs_of_worker) restart(contender);
  tree = fresh_tree(*contender.subject);
  if (pass == Pass::kept) {
    contender.warmer->send(tree, true, {});
    contender.warmer->receive();
  }
  contender.history.push_back({pass, sequence});
  contender.subject->send(tree, pass == Pass::warm, sequence);
  ++runs_;
}

std::string Arena::play_plain(const Sequence& sequence) {
  const Tree tree = fresh_tree(*plain_);
  plain_->send(tree, false, sequence);
  std::string log = plain_->receive();
  remove_tree(tree);
  return log;
}

std::vector<Arena::Finding> Arena::play(const Sequence& sequence, bool with_outsider, bool is_kept_turn) {
  std::vector<Finding> findings;
  std::vector<Tree> trees(contenders_.size());
  std::string plain;
  for (const Pass pass : {Pass::cold, is_kept_turn ? Pass::kept : Pass::warm}) {
    const auto takes_part = [&](const Contender& c) { return c.sees_outsider == with_outsider || contenders_.size() == 1; };
    for (std::size_t i = 0; i < contenders_.size(); ++i) {
      if (takes_part(contenders_[i])) send(contenders_[i], pass, sequence, trees[i]);
    }
    if (pass == Pass::cold) plain = play_plain(sequence);
    for (std::size_t i = 0; i < contenders_.size(); ++i) {
      if (!takes_part(contenders_[i])) continue;
      const std::string log = contenders_[i].subject->receive();
      remove_tree(trees[i]);
      Finding finding{i, contenders_[i].history, {}};
      if (find_difference(plain, log, finding.difference)) findings.push_back(std::move(finding));
    }
  }
  return findings;
}

bool Arena::differs(std::size_t number, const std::vector<Run>& runs, bool fresh, Difference& difference) {
  Contender& contender = contenders_[number];
  if (fresh || runs.size() > 1) restart(contender);
  std::string log;
  for (const Run& run : runs) {
    Tree tree;
    send(contender, run.pass, run.sequence, tree);
    log = contender.subject->receive();
    remove_tree(tree);
  }
  return find_difference(play_plain(runs.back().sequence), log, difference);
}

bool Arena::is_deterministic(const Sequence& sequence, Difference& difference) {
  const std::string first = play_plain(sequence);
  return !find_difference(first, play_plain(sequence), difference) && !find_difference(first, play_plain(sequence), difference);
}

}  // namespace cube::differ
