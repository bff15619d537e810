// The file under the region's name is replaced between any two system calls of a process that
// attaches. Other users can do this in a directory without a sticky bit, and a process of the same
// user can always do it. In each case, the attaching process must end in time and read the right
// bytes, and the victim's other files must stay as they are. No process may wait long for a lock.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/support/temp_dir.h"
#include "tests/support/test_region.h"
#include "tests/support/tracee.h"

namespace cube::cache {
namespace {

using tests::RegionName;
using tests::TempDir;
using tests::Tracee;

constexpr const char* k_victims = "the victim's own file, which nobody is to touch";

struct Stage {
  TempDir dir;
  RegionName name{8 * tests::k_mib};
  std::string file = dir.write("f", tests::content_of("f", 1, 50'000));
  std::string victim = dir.write("victim", k_victims);
};

using Attack = void (*)(const Stage&);
const std::map<std::string, Attack> k_attacks = {
    {"fifo",
     [](const Stage& s) {
       unlink(s.name.path().c_str());
       mkfifo(s.name.path().c_str(), 0600);
     }},
    {"link to the victim's file",
     [](const Stage& s) {
       unlink(s.name.path().c_str());
       if (symlink(s.victim.c_str(), s.name.path().c_str()) != 0) ADD_FAILURE();
     }},
    {"link to a free name",
     [](const Stage& s) {
       unlink(s.name.path().c_str());
       if (symlink((s.dir / "free").c_str(), s.name.path().c_str()) != 0) ADD_FAILURE();
     }},
    {"directory",
     [](const Stage& s) {
       unlink(s.name.path().c_str());
       mkdir(s.name.path().c_str(), 0700);
     }},
    {"file without content",
     [](const Stage& s) {
       unlink(s.name.path().c_str());
       TempDir::write_file(s.name.path(), "");
       chmod(s.name.path().c_str(), 0600);
     }},
    {"nothing", [](const Stage& s) { unlink(s.name.path().c_str()); }},
};

// System calls that use the file under the name, or that come before such a call.
const std::set<long> k_moments = {SYS_openat, SYS_linkat,    SYS_newfstatat, SYS_unlinkat,
                                  SYS_fstat,  SYS_fallocate, SYS_ftruncate};

int victims_life(const Stage& stage) {
  alarm(120);  // for a wait for the other end of a FIFO
  const base::Config config = tests::config_for(stage.name.options);
  std::string why;
  const auto cache = FileCache::attach(config, base::current_process(), true, why);
  if (!cache) return why.empty() ? 3 : 0;  // refused, with a reason
  for (int turn = 0; turn < 2; ++turn) {
    const OpenOutcome outcome = (*cache)->open(tests::request_for(stage.file));
    if (outcome.pin) {
      CHILD_CHECK(tests::bytes_of(*outcome.pin) == tests::content_of("f", 1, 50'000));
    } else {
      CHILD_CHECK(outcome.kernel_fd >= 0);
      close(outcome.kernel_fd);
    }
  }
  (*cache)->detach();
  return 0;
}

// Attacks before the n-th of these calls. Returns false if the process made fewer calls.
bool attack_at(int n, const std::string& what, Attack attack, bool region_is_there) {
  const Stage stage;
  if (region_is_there) {
    EXPECT_EQ(tests::run_in_child([&] {
                auto options = stage.name.options;
                options.keep = true;
                const auto* const region = tests::attach(options);
                return region != nullptr ? 0 : 1;
              }),
              0);
  }
  Tracee victim([&] { return victims_life(stage); });
  int seen = 0;
  while (seen < n && victim.to_system_call()) {
    seen += std::any_of(k_moments.begin(), k_moments.end(),
                        [&](long number) { return victim.at_entry_of(number); })
                ? 1
                : 0;
  }
  if (!victim.is_alive()) {
    EXPECT_EQ(victim.exit_status(), 0);
    return false;
  }
  attack(stage);
  while (victim.to_stop()) {
  }
  EXPECT_EQ(victim.exit_status(), 0)
      << what << " at call " << n << (region_is_there ? " of one that joins" : "");
  std::string content(std::strlen(k_victims), '\0');
  const int fd = open(stage.victim.c_str(), O_RDONLY);
  EXPECT_EQ(read(fd, content.data(), content.size()), static_cast<ssize_t>(content.size()));
  struct stat st {};
  EXPECT_TRUE(fstat(fd, &st) == 0 && static_cast<std::size_t>(st.st_size) == content.size() &&
              st.st_nlink == 1);
  close(fd);
  EXPECT_EQ(content, k_victims) << what << " at call " << n;
  EXPECT_FALSE(tests::exists(stage.dir / "free")) << what << " at call " << n;
  if (rmdir(stage.name.path().c_str()) != 0) unlink(stage.name.path().c_str());
  return true;
}

void attack_everywhere(bool region_is_there) {
  int attacks = 0;
  for (const auto& [what, attack] : k_attacks) {
    for (int n = 1;
         n < 400 && attack_at(n, what, attack, region_is_there) && !testing::Test::HasFailure();
         ++n)
      ++attacks;
  }
  std::printf("%d attacks\n", attacks);
  EXPECT_GT(attacks, 50);
}

TEST(RegionRace, NameIsTakenWhileARegionIsMade) { attack_everywhere(false); }
TEST(RegionRace, NameIsTakenWhileAProcessJoins) { attack_everywhere(true); }

// Returns the reason why a kept region with a changed word is refused.
std::string why_refused(std::uint64_t at, std::uint32_t word) {
  RegionName name;
  name.options.keep = true;
  EXPECT_EQ(tests::run_in_child([&] {
              Region* const region = tests::attach(name.options);
              CHILD_CHECK(region != nullptr);
              region->detach();
              return 0;
            }),
            0);
  const int fd = open(name.path().c_str(), O_RDWR);
  EXPECT_EQ(pwrite(fd, &word, sizeof word, static_cast<off_t>(at)),
            static_cast<ssize_t>(sizeof word));
  close(fd);
  std::string why;
  EXPECT_EQ(tests::attach(name.options, &why), nullptr);
  return why;
}

TEST(RegionLock, IsRefusedInTimeIfItIsNeverReleased) {
  EXPECT_NE(why_refused(offsetof(RegionHeader, lifecycle), 1).find("held by a stopped process"),
            std::string::npos);
}

TEST(RegionLock, IsRefusedIfItIsOfAnotherKind) {
  constexpr std::uint64_t k_kind = offsetof(pthread_mutex_t, __data.__kind);
  for (const std::uint32_t kind : {0U, 32U, 64U, 0xffffffffU}) {
    EXPECT_NE(
        why_refused(offsetof(RegionHeader, lifecycle) + k_kind, kind).find("not a sound region"),
        std::string::npos);
  }
}

// A region of this user gets the name of another region. The region is valid, but the name does not
// belong to it.
TEST(RegionRace, ASecondNameIsRefused) {
  const RegionName one, two;
  EXPECT_EQ(tests::run_in_child([&] {
              auto options = one.options;
              options.keep = true;
              return tests::attach(options) != nullptr ? 0 : 1;
            }),
            0);
  ASSERT_EQ(link(one.path().c_str(), two.path().c_str()), 0);
  EXPECT_EQ(tests::run_in_child([&] {
              std::string why;
              CHILD_CHECK(tests::attach(two.options, &why) == nullptr);
              CHILD_CHECK(why.find("refused") != std::string::npos);
              return 0;
            }),
            0);
}

}  // namespace
}  // namespace cube::cache
