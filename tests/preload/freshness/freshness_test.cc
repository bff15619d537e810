// The table of doc/SEMANTICS.md, "Freshness": whether and when a reader sees each event, in each
// mode. The driver does not run under the library. It acts as another node, and as the oracle,
// because the kernel shows it the true state. It also keeps the region alive between jobs, and sets
// back the time at which records were revalidated, so that no test waits for a TTL.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "cache/base/clock.h"
#include "cache/base/unique_fd.h"
#include "tests/preload/freshness/events.h"
#include "tests/preload/freshness/program.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_region.h"

namespace cube::freshness {
namespace {

// The time at which readers see a change that bypassed the library. A change through the library is
// seen immediately in every mode.
enum Seen {
  by_next_job,   // and by all, once that job has revalidated
  after_ttl,     // S seconds after the last revalidation, by the next open or stat
  by_next_open,  // or stat
};
struct Row {
  const char* event;
  Seen immutable, ttl, open;
};
// clang-format off
constexpr Row k_rows[] = {
    // at the origin              immutable     ttl:S         open
    {"written",                   by_next_job,  after_ttl,    by_next_open},
    {"rewritten",                 by_next_job,  after_ttl,    by_next_open},
    {"grown",                     by_next_job,  after_ttl,    by_next_open},
    {"truncated",                 by_next_job,  after_ttl,    by_next_open},
    {"written_and_time_put_back", by_next_job,  after_ttl,    by_next_open},
    {"written_by_another_link",   by_next_job,  after_ttl,    by_next_open},
    {"renamed_over",              by_next_job,  after_ttl,    by_next_open},
    {"renamed_away",              by_next_job,  after_ttl,    by_next_open},
    {"removed",                   by_next_job,  after_ttl,    by_next_open},
    {"touched",                   by_next_job,  after_ttl,    by_next_open},
    {"mode_changed",              by_next_job,  after_ttl,    by_next_open},
    {"link_added",                by_next_job,  after_ttl,    by_next_open},
    {"directory_replaced",        by_next_job,  after_ttl,    by_next_open},
    {"symbolic_link_switched",    by_next_job,  after_ttl,    by_next_open},
    // Neither negative entries nor listings are cached.
    {"created",                   by_next_open, by_next_open, by_next_open},
    {"entry_added",               by_next_open, by_next_open, by_next_open},
    {"entry_removed",             by_next_open, by_next_open, by_next_open},
};
// clang-format on

constexpr std::uint64_t k_ttl_seconds = 1000;

struct Mode {
  const char* name;
  const char* setting;
  const char* file_mode;  // CUBESHIM_MODE
  Seen Row::*seen;
};
constexpr Mode k_modes[] = {{"immutable", "immutable", "virtual", &Row::immutable},
                            {"ttl", "ttl:1000", "virtual", &Row::ttl},
                            {"open", "open", "virtual", &Row::open},
                            {"real_open", "open", "real", &Row::open}};

// A data set, before and after an event, and programs that read it.
class Stage {
 public:
  Stage(const std::string& event, const Mode& mode) : event_(event_named(event)) {
    mkdir(data_.c_str(), 0755);
    event_.prepare(data_);
    old_path = see_path(path());
    // If the path is not a file, there is no open file to check.
    kernel_fd_ = open(path().c_str(), O_RDONLY | O_CLOEXEC);
    has_file = kernel_fd_ >= 0 && old_path.find("holds") == std::string::npos;
    if (has_file) old_fd = see_fd(kernel_fd_);
    environment_ = {{"PATH", "/usr/bin:/bin"},
                    {"LD_PRELOAD", library()},
                    {"CUBESHIM_PREFIXES", data_},
                    {"CUBESHIM_NAME", cache_.options.name},
                    {"CUBESHIM_CONSISTENCY", mode.setting},
                    {"CUBESHIM_MODE", mode.file_mode},
                    {"CUBESHIM_PREFETCH", "0"},
                    {"CUBESHIM_STATS", "off"},
                    {"CUBESHIM_STRICT", "1"}};
  }
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;
  ~Stage() {
    if (kernel_fd_ >= 0) close(kernel_fd_);
  }

  const std::string& data() const { return data_; }
  std::string path() const { return data_ + "/" + event_.subject; }
  std::string see() const { return "see " + path(); }
  std::string happen() const { return "happen " + event_and(data_); }
  std::string event_and(const std::string& data) const {
    return std::string(event_.name) + " " + data;
  }
  // Paths to the data set that lie below no prefix.
  std::string link_to_data() const {
    const std::string link = dir_ / "link";
    EXPECT_EQ(symlink(data_.c_str(), link.c_str()), 0);
    return link;
  }
  std::string other_prefix() const {
    const std::string other = dir_ / "other";
    EXPECT_EQ(mkdir(other.c_str(), 0755), 0);
    return other;
  }
  // Bypasses the library.
  void happen_at_origin() const { event_.happen(data_); }
  // Records what the kernel shows now.
  void look_at_truth() {
    new_path = see_path(path());
    if (has_file) new_fd = see_fd(kernel_fd_);
    ASSERT_NE(new_path, old_path) << "nothing has happened";
  }

  std::map<std::string, std::string> new_job() const { return environment_; }
  std::map<std::string, std::string> same_job(Program& as) const {
    auto environment = environment_;
    environment["CUBESHIM_JOB"] = as.ask("job");
    return environment;
  }
  bool is_cached() const { return static_cast<bool>(tests::find(tier_, path())); }
  // Makes the record look as if this many seconds had passed since it was revalidated.
  void age(std::uint64_t seconds) {
    const cache::Pin pin = tests::find(tier_, path());
    if (pin) tier_.mark_verified(*pin, pin->verified_ns.load() - seconds * 1'000'000'000);
  }

  std::string old_path, new_path, old_fd, new_fd;
  bool has_file = false;

 private:
  // FRESHNESS_LIBRARY: another build, to show that the tests notice its faults.
  static std::string library() {
    const char* const other = getenv("FRESHNESS_LIBRARY");
    return other != nullptr ? other : CUBESHIM_LIBRARY;
  }
  const Event& event_;
  tests::TempDir dir_;
  std::string data_ = dir_ / "data";
  tests::TestCache cache_;
  cache::RamTier tier_{cache_.cache->region()};
  std::map<std::string, std::string> environment_;
  int kernel_fd_ = -1;
};

using Cell = std::tuple<Mode, Row>;
void PrintTo(const Mode& mode, std::ostream* out) { *out << mode.setting; }
void PrintTo(const Row& row, std::ostream* out) { *out << row.event; }

class Freshness : public testing::TestWithParam<Cell> {
 protected:
  const Mode& mode() const { return std::get<0>(GetParam()); }
  const Row& row() const { return std::get<1>(GetParam()); }
  Seen seen() const { return row().*mode().seen; }
  bool is_cached_in_between() const { return row().immutable == by_next_job; }

  // Makes the reader cache the path and, if the path is a file, keep it open.
  void warm(Stage& stage, Program& reader) const {
    ASSERT_EQ(reader.ask(stage.see()), stage.old_path);
    ASSERT_EQ(stage.is_cached(), is_cached_in_between());
    if (stage.has_file) {
      ASSERT_EQ(reader.ask("open " + stage.path()), stage.old_fd);
    }
  }
  // All readers see the true state, by path and through the open file.
  static void expect_truth(Stage& stage, std::initializer_list<Program*> programs) {
    for (Program* const program : programs) EXPECT_EQ(program->ask(stage.see()), stage.new_path);
    if (stage.has_file) {
      EXPECT_EQ((*programs.begin())->ask("see-open"), stage.new_fd);
    }
  }
};

TEST_P(Freshness, ChangeThroughTheLibraryIsSeenImmediately) {
  for (const bool by_reader_itself : {true, false}) {
    SCOPED_TRACE(by_reader_itself ? "by the reader itself" : "by another process");
    Stage stage(row().event, mode());
    Program reader(stage.new_job());
    warm(stage, reader);
    // The reader belongs to another job, and has read nothing yet.
    Program other(stage.new_job());
    ASSERT_EQ((by_reader_itself ? reader : other).ask(stage.happen()), "done");
    stage.look_at_truth();
    // The open file is checked first, before any process has revalidated.
    if (stage.has_file) {
      EXPECT_EQ(reader.ask("see-open"), stage.new_fd);
    }
    Program third(stage.same_job(reader));
    expect_truth(stage, {&reader, &third, &other});
  }
}

TEST_P(Freshness, ChangeAtTheOriginDuringAJobIsSeenAsPromised) {
  Stage stage(row().event, mode());
  Program reader(stage.new_job());
  warm(stage, reader);
  stage.happen_at_origin();
  stage.look_at_truth();
  // An open file shows the old state until a process has revalidated.
  if (stage.has_file) {
    EXPECT_EQ(reader.ask("see-open"), stage.old_fd);
  }
  Program second(stage.same_job(reader));
  const std::string& next = seen() == by_next_open ? stage.new_path : stage.old_path;
  EXPECT_EQ(reader.ask(stage.see()), next);
  EXPECT_EQ(second.ask(stage.see()), next);
  if (seen() == after_ttl) {
    stage.age(k_ttl_seconds - 100);
    EXPECT_EQ(reader.ask(stage.see()), stage.old_path);
    stage.age(100);
    EXPECT_EQ(second.ask(stage.see()), stage.new_path);
  }
  if (seen() == by_next_job) {
    Program of_next_job(stage.new_job());
    EXPECT_EQ(of_next_job.ask(stage.see()), stage.new_path);
  }
  expect_truth(stage, {&reader, &second});
}

TEST_P(Freshness, ChangeAtTheOriginBetweenTwoJobsIsSeenByTheSecond) {
  Stage stage(row().event, mode());
  {
    Program reader(stage.new_job());
    warm(stage, reader);
    ASSERT_EQ(reader.end(), 0);
  }
  stage.happen_at_origin();
  stage.look_at_truth();
  ASSERT_EQ(stage.is_cached(), is_cached_in_between());
  Program of_next_job(stage.new_job());
  if (seen() == after_ttl) {
    EXPECT_EQ(of_next_job.ask(stage.see()), stage.old_path);
    stage.age(k_ttl_seconds);
  }
  EXPECT_EQ(of_next_job.ask(stage.see()), stage.new_path);
}

// The process that makes the change has cached nothing, or no longer serves files. It must still
// notify the reader.
struct Teller {
  const char* name;
  const char* become;  // nullptr: nothing
  const char* happen;
  bool reads_before, by_link, has_other_prefix;
};
constexpr Teller k_tellers[] = {
    {"by_link", nullptr, "happen ", false, true, false},
    {"by_link_in_fork", nullptr, "happen-in-fork ", false, true, false},
    {"by_link_in_vfork", nullptr, "happen-in-vfork ", false, true, false},
    {"in_vfork", nullptr, "happen-in-vfork ", false, false, false},
    {"with_other_prefixes", nullptr, "happen ", false, false, true},
    {"setegid", "setegid", "happen ", true, false, false},
    {"setegid_before_all", "setegid", "happen ", false, false, false},
    {"setegid_and_fork", "setegid", "happen-in-fork ", true, false, false},
    {"setegid_and_vfork", "setegid", "happen-in-vfork ", true, false, false},
    {"setgroups", "setgroups", "happen ", true, false, false},
    {"setgroups_by_number_before_all", "setgroups_by_number", "happen ", false, false, false},
    {"seteuid_and_back", "seteuid_and_back", "happen ", true, false, false},
    {"chroot", "chroot", "happen ", true, true, false},
    {"chroot_before_all", "chroot", "happen ", false, false, false},
    {"unshare", "unshare", "happen ", true, false, false},
};

class FreshnessTold : public testing::TestWithParam<Teller> {};

TEST_P(FreshnessTold, ChangeByAnyProcessIsSeenImmediately) {
  const Teller& teller = GetParam();
  for (const char* const event :
       {"written", "truncated", "renamed_over", "removed", "mode_changed"}) {
    SCOPED_TRACE(event);
    Stage stage(event, k_modes[0]);
    Program reader(stage.new_job());
    ASSERT_EQ(reader.ask(stage.see()), stage.old_path);
    auto environment = stage.new_job();
    if (teller.has_other_prefix) environment["CUBESHIM_PREFIXES"] = stage.other_prefix();
    Program writer(environment);
    if (teller.reads_before) {
      ASSERT_EQ(writer.ask(stage.see()), stage.old_path);
    }
    if (teller.become != nullptr && writer.ask(std::string("become ") + teller.become) != "done")
      GTEST_SKIP() << "these rights cannot be changed here";
    const std::string data = teller.by_link ? stage.link_to_data() : stage.data();
    ASSERT_EQ(writer.ask(teller.happen + stage.event_and(data)), "done");
    stage.look_at_truth();
    EXPECT_EQ(reader.ask(stage.see()), stage.new_path);
  }
}

void PrintTo(const Teller& teller, std::ostream* out) { *out << teller.name; }
INSTANTIATE_TEST_SUITE_P(Tellers, FreshnessTold, testing::ValuesIn(k_tellers),
                         [](const auto& teller) { return std::string(teller.param.name); });

std::string name_of(const testing::TestParamInfo<Cell>& cell) {
  return std::string(std::get<0>(cell.param).name) + "_" + std::get<1>(cell.param).event;
}
INSTANTIATE_TEST_SUITE_P(Table, Freshness,
                         testing::Combine(testing::ValuesIn(k_modes), testing::ValuesIn(k_rows)),
                         name_of);

// Returns the cells of a row as the document shows them. A change of a path that is never cached is
// seen without an open.
std::string documented(const Row& row) {
  const bool is_cached = row.immutable != by_next_open;
  const char* const words[] = {"next job", "after S", is_cached ? "next open" : "within 1 s"};
  return std::string("| `") + row.event + "` | " + words[row.immutable] + " | " + words[row.ttl] +
         " | " + words[row.open] + " |\n";
}

TEST(FreshnessTable, HasARowForEachEventAsTheDocumentDoes) {
  std::ifstream file(SEMANTICS_MD);
  const std::string document{std::istreambuf_iterator<char>(file), {}};
  for (const Event& event : events()) {
    const Row* const row = std::find_if(std::begin(k_rows), std::end(k_rows), [&](const Row& one) {
      return one.event == std::string(event.name);
    });
    ASSERT_NE(row, std::end(k_rows)) << event.name;
    EXPECT_NE(document.find(documented(*row)), std::string::npos) << documented(*row);
  }
}

// No process is left between the jobs.
TEST(FreshnessKept, NextJobSeesChangesMadeBetweenJobs) {
  for (const char* const event :
       {"written_and_time_put_back", "renamed_over", "removed", "touched"}) {
    SCOPED_TRACE(event);
    Stage stage(event, k_modes[0]);
    const tests::RegionName kept;  // removes the file
    auto environment = stage.new_job();
    environment["CUBESHIM_NAME"] = kept.options.name;
    environment["CUBESHIM_RAM"] = "16M";
    environment["CUBESHIM_RAM_KEEP"] = "1";
    {
      Program reader(environment);
      ASSERT_EQ(reader.ask(stage.see()), stage.old_path);
      ASSERT_EQ(reader.end(), 0);
    }
    ASSERT_TRUE(tests::exists(kept.path()));
    stage.happen_at_origin();
    stage.look_at_truth();
    Program of_next_job(environment);
    EXPECT_EQ(of_next_job.ask(stage.see()), stage.new_path);
    EXPECT_EQ(of_next_job.end(), 0);
  }
}

// Uses the real clock, which the tests above replace. The reader only opens the file, because the
// TTL could expire between an open and a stat.
TEST(FreshnessTtl, ExpiresAfterItsSeconds) {
  constexpr std::uint64_t k_second = 1'000'000'000;
  Stage stage("renamed_over", {"ttl", "ttl:1", "virtual", &Row::ttl});
  Program reader(stage.new_job());
  const std::string open_it = "open " + stage.path();
  const std::uint64_t before_look = base::boot_ns();
  ASSERT_EQ(reader.ask(open_it), stage.old_fd);
  const std::uint64_t after_look = base::boot_ns();
  stage.happen_at_origin();
  const base::UniqueFd opened{open(stage.path().c_str(), O_RDONLY | O_CLOEXEC)};
  const std::string new_fd = see_fd(opened.get());
  std::string seen = stage.old_fd;
  while (seen != new_fd) {
    const std::uint64_t asked = base::boot_ns();
    seen = reader.ask(open_it);
    ASSERT_TRUE(seen == stage.old_fd || seen == new_fd) << seen;
    if (seen == stage.old_fd) {
      ASSERT_LT(asked, after_look + k_second);
    } else {
      EXPECT_GE(base::boot_ns(), before_look + k_second);
    }
  }
}

}  // namespace
}  // namespace cube::freshness
