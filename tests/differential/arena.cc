#include "tests/differential/arena.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "tests/differential/generate.h"

namespace cube::differ {
namespace {

constexpr unsigned k_runs_of_worker = 90;  // the region has room for the records of all their trees
constexpr unsigned k_runs_of_worker_if_large = 8;
constexpr unsigned k_packed_trees = 45;  // trees of each kind in the pack

// True if the lines are equal, except for words that are "?" in the library's line (see
// Player::show).
bool is_same(std::string_view plain, std::string_view subject) {
  if (subject.find('?') == std::string_view::npos) return plain == subject;
  const auto word = [](std::string_view& text) {
    const std::string_view first = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(first.size() + 1, text.size()));
    return first;
  };
  while (!plain.empty() && !subject.empty()) {
    const std::string_view a = word(plain), b = word(subject);
    if (a != b && b != "?") return false;
  }
  return plain.empty() && subject.empty();
}

bool find_difference(std::string_view plain, std::string_view subject, Difference& difference) {
  // A wrong verdict of the model counts as a difference, even if both lines are equal.
  if (plain == subject && subject.find("model: wrong") == std::string_view::npos) return false;
  std::size_t at = 0, other = 0;
  const auto line = [](std::string_view text, std::size_t from) {
    return from >= text.size() ? std::string_view("(nothing more)")
                               : text.substr(from, text.find('\n', from) - from);
  };
  while (true) {
    const std::string_view a = line(plain, at), b = line(subject, other);
    if (at >= plain.size() && other >= subject.size()) return false;
    if (is_same(a, b) && at < plain.size() && a.find("model: wrong") == std::string_view::npos) {
      at += a.size() + 1;
      other += b.size() + 1;
      continue;
    }
    difference = {std::string(a), std::string(b),
                  std::string(plain.substr(0, std::min(at, plain.size())))};
    return true;
  }
}

}  // namespace

std::string_view name_of(Pass pass) {
  return pass == Pass::cold ? "cold" : pass == Pass::warm ? "warm" : "kept";
}

Arena::Arena(const std::string& base, const std::vector<std::string>& names) : base_(base) {
  for (const char* const part : {"/plain", "/cover", "/other"})
    std::filesystem::create_directories(base + part);
  plain_ = std::make_unique<Subject>(
      Settings{.name = "plain", .mode = "", .cache = "", .base = base, .block = ""});
  pack_ = is_bucket() ? "s3://" + pack_source(base).substr(base.size() + 1) : base + "/set.cube";
  std::vector<Settings> all = {
      {.name = "virtual", .mode = "virtual", .cache = "", .base = base, .block = ""},
      {.name = "real", .mode = "real", .cache = "", .base = base, .block = ""},
      {.name = "virtual-open",
       .mode = "virtual",
       .consistency = "open",
       .cache = "",
       .base = base,
       .block = ""},
      {.name = "virtual-ttl",
       .mode = "virtual",
       .consistency = "ttl:0",
       .cache = "",
       .base = base,
       .block = ""},
      {.name = "real-open",
       .mode = "real",
       .consistency = "open",
       .cache = "",
       .base = base,
       .block = ""},
      {.name = "virtual-blocks", .mode = "virtual", .cache = "", .base = base, .block = "4K"},
      {.name = "virtual-pack",
       .mode = "virtual",
       .cache = "",
       .base = base,
       .block = "",
       .pack = pack_},
      {.name = "real-pack", .mode = "real", .cache = "", .base = base, .block = "", .pack = pack_}};
  // The last subject caches a third of a tree in memory and the rest on the disk.
  if (has_large_files())
    all = {{.name = "large-4k",
            .mode = "virtual",
            .cache = "",
            .base = base,
            .block = "4K",
            .ram = "2G"},
           {.name = "large-64k",
            .mode = "virtual",
            .cache = "",
            .base = base,
            .block = "64K",
            .ram = "2G"},
           {.name = "large-1m",
            .mode = "virtual",
            .cache = "",
            .base = base,
            .block = "1M",
            .ram = "2G"},
           {.name = "large-disk",
            .mode = "virtual",
            .cache = "",
            .base = base,
            .block = "1M",
            .ram = "64M",
            .has_disk = true}};
  if (is_bucket())
    all = {{.name = "virtual-bucket",
            .mode = "virtual",
            .cache = "",
            .base = base,
            .block = "",
            .pack = pack_},
           {.name = "open-bucket",
            .mode = "virtual",
            .consistency = "open",
            .cache = "",
            .base = base,
            .block = "",
            .pack = pack_},
           {.name = "blocks-bucket",
            .mode = "virtual",
            .cache = "",
            .base = base,
            .block = "4K",
            .pack = pack_},
           {.name = "real-bucket",
            .mode = "real",
            .cache = "",
            .base = base,
            .block = "",
            .pack = pack_}};
  const auto is_left_out = [&](const Settings& s) {
    return !names.empty() && std::ranges::find(names, s.name) == names.end();
  };
  std::erase_if(all, is_left_out);
  const auto has_pack = [](const Settings& s) { return !s.pack.empty(); };
  if (std::ranges::any_of(all, has_pack) && !make_pack()) std::erase_if(all, has_pack);
  for (Settings& settings : all) {
    settings.cache = "differ-" + std::to_string(getpid()) + "-" + settings.name;
    Contender contender;
    contender.sees_outsider = settings.consistency != "immutable";
    contender.subject = std::make_unique<Subject>(settings);
    settings.name += "-warmer";
    contender.warmer = std::make_unique<Subject>(settings);
    contenders_.push_back(std::move(contender));
  }
}

Arena::~Arena() { stop(); }

void Arena::stop() {
  for (Contender& contender : contenders_) restart(contender);
}

void Arena::restart(Contender& contender) {
  contender.subject->stop();
  contender.warmer->stop();
  contender.subject->clear_disk();
  const std::string name = contender.warmer->settings().cache;
  const std::string next = name.substr(0, name.rfind('.')) + "." + std::to_string(++restarts_);
  contender.subject->rename_cache(next);
  contender.warmer->rename_cache(next);
  contender.history.clear();
  contender.packed_trees = {};
}

Kind Arena::kind_of(std::uint64_t seed) const {
  const auto count = std::ranges::count_if(contenders_, &Contender::has_pack);
  if (count == 0) return kind_without_packs(seed);
  return static_cast<std::size_t>(count) == contenders_.size() ? kind_of_pack(seed)
                                                               : differ::kind_of(seed);
}

Tree Arena::packed_tree(unsigned number, Kind kind) const {
  // The kernel can enter every second tree.
  const std::string name =
      "/t" + std::to_string(1'000'000 + 2 * number + (kind == Kind::entered ? 1 : 0)) + "/r";
  const std::string root = packed_prefix(base_) + name;
  return {root, {}, pack_source(base_) + name, kind == Kind::entered ? root : base_};
}

bool is_fuse(const std::string& path) {
  constexpr decltype(statfs::f_type) k_fuse_magic = 0x65735546;
  struct statfs fs {};
  return statfs(path.c_str(), &fs) == 0 && fs.f_type == k_fuse_magic;
}

// Makes one pack for all runs, because nothing in a pack changes. A worker uses each tree of the
// pack only one time. A plain run changes nothing, so it always uses the first tree of each kind.
bool Arena::make_pack() {
  for (const std::string& part : {pack_source(base_), packed_prefix(base_)})
    std::filesystem::create_directories(part);
  if (!Subject::can_mount(base_)) {
    std::printf("differ: nothing is compared with packs: that takes root, and a mount\n");
    return false;
  }
  // Files on FUSE differ from files of a pack: epoll can watch them, they have no time of birth,
  // and root may execute any of them.
  if (is_fuse(base_)) {
    std::printf(
        "differ: nothing is compared with packs: they answer as local file systems do, and FUSE "
        "otherwise\n");
    return false;
  }
  for (unsigned number = 0; number < k_packed_trees; ++number) {
    for (const Kind kind : {Kind::packed, Kind::entered}) make_source(packed_tree(number, kind));
    make_directories(packed_tree(number, Kind::entered));
  }
  plain_mounted_ = std::make_unique<Subject>(Settings{
      .name = "plain-mounted", .mode = "", .cache = "", .base = base_, .block = "", .pack = pack_});
  // The test's gateway uses a directory as the bucket.
  if (is_bucket()) return true;
  const pid_t child = fork();
  if (child == 0) {
    dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);
    const char* const command = getenv("DIFFER_COMMAND");
    execl(command != nullptr ? command : CUBESHIM_COMMAND, "cubeshim", "pack", "-q",
          pack_source(base_).c_str(), pack_.c_str(), nullptr);
    _exit(127);
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child || status != 0) {
    std::fprintf(stderr, "differ: no pack could be made\n");
    std::exit(2);
  }
  return true;
}

Tree Arena::fresh_tree(const Subject& subject, Kind kind, unsigned number) {
  // All names have the same length, because a sequence can see the length of a path.
  const std::string name = "/t" + std::to_string(1'000'000 + trees_++),
                    outside = base_ + "/other" + name + "/r";
  if (is_of_pack(kind)) {
    Tree tree = packed_tree(number, kind);
    tree.outside = outside;
    make_outside(tree);
    return tree;
  }
  const Tree tree{base_ + (subject.is_plain() ? "/plain" : "/cover") + name + "/r", outside};
  make_tree(tree);
  return tree;
}

void Arena::send(Contender& contender, const Run& run, Tree& tree) {
  const unsigned played = contender.subject->played();
  unsigned& packed_trees = contender.packed_trees[run.kind == Kind::entered ? 1 : 0];
  // A file in blocks uses a place of 2 MiB in the region.
  const unsigned usual =
      contender.subject->settings().block.empty() ? k_runs_of_worker : k_runs_of_worker / 4;
  const unsigned most = has_large_files() ? k_runs_of_worker_if_large : usual;
  if (played == 0 || played >= most || packed_trees >= k_packed_trees) restart(contender);
  tree = fresh_tree(*contender.subject, run.kind, packed_trees);
  packed_trees += is_of_pack(run.kind) ? 1 : 0;
  if (run.pass == Pass::kept) {
    contender.warmer->send(tree, true, {});
    contender.warmer->receive();
  }
  contender.history.push_back(run);
  contender.subject->send(tree, run.pass == Pass::warm, run.sequence);
  ++runs_;
}

std::string Arena::play_plain(const Run& run) {
  Subject& plain = is_of_pack(run.kind) ? *plain_mounted_ : *plain_;
  const Tree tree = fresh_tree(plain, run.kind, 0);
  plain.send(tree, false, run.sequence);
  std::string log = plain.receive();
  remove_tree(tree);
  return log;
}

std::vector<Arena::Finding> Arena::play(const Sequence& sequence, Kind kind, bool is_kept_turn) {
  std::vector<Finding> findings;
  std::vector<Tree> trees(contenders_.size());
  std::string plain;
  for (const Pass pass : {Pass::cold, is_kept_turn ? Pass::kept : Pass::warm}) {
    const Run run{pass, sequence, kind};
    // A single contender takes part in all sequences.
    const auto takes_part = [&](const Contender& c) {
      return c.plays(kind) || contenders_.size() == 1;
    };
    for (std::size_t i = 0; i < contenders_.size(); ++i) {
      if (takes_part(contenders_[i])) send(contenders_[i], run, trees[i]);
    }
    if (pass == Pass::cold) plain = play_plain(run);
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

bool Arena::differs(std::size_t number, const std::vector<Run>& runs, bool fresh,
                    Difference& difference) {
  Contender& contender = contenders_[number];
  if (fresh || runs.size() > 1) restart(contender);
  std::string log;
  for (const Run& run : runs) {
    Tree tree;
    send(contender, run, tree);
    log = contender.subject->receive();
    remove_tree(tree);
  }
  return find_difference(play_plain(runs.back()), log, difference);
}

bool Arena::is_deterministic(const Run& run, Difference& difference) {
  const std::string first = play_plain(run);
  return !find_difference(first, play_plain(run), difference) &&
         !find_difference(first, play_plain(run), difference);
}

}  // namespace cube::differ
