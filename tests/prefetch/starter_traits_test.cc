// A thread of the library inherits only some traits of the thread that starts it.
#include "prefetch/threads/starter_traits.h"

#include <gtest/gtest.h>
#include <linux/ioprio.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <thread>

#include "prefetch/threads/background_thread.h"
#include "prefetch/threads/thread_crew.h"
#include "tests/support/child.h"

namespace cube::prefetch {
namespace {

constexpr long k_odd_slack_ns = 900'000'000, k_default_slack_ns = 50'000;

struct Traits {
  int policy = -1, niceness = -100, processors = 0;
  long slack = 0, disk_class = 0, disk_level = 0;

  static Traits here() {
    Traits found;
    found.policy = sched_getscheduler(0);
    found.niceness = getpriority(PRIO_PROCESS, static_cast<id_t>(gettid()));
    cpu_set_t set;
    sched_getaffinity(0, sizeof set, &set);
    found.processors = CPU_COUNT(&set);
    found.slack = prctl(PR_GET_TIMERSLACK);
    const long disk = syscall(SYS_ioprio_get, IOPRIO_WHO_PROCESS, 0);
    found.disk_class = IOPRIO_PRIO_CLASS(disk);
    found.disk_level = IOPRIO_PRIO_DATA(disk);
    return found;
  }
};

bool set_policy_here(int policy, int priority) {
  const sched_param parameters{.sched_priority = priority};
  return sched_setscheduler(0, policy, &parameters) == 0;
}
bool set_disk_here(int level_class, int level) {
  return syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_PRIO_VALUE(level_class, level)) == 0;
}
bool pin_here() {
  cpu_set_t set;
  sched_getaffinity(0, sizeof set, &set);
  bool is_first = true;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &set) && !std::exchange(is_first, false)) CPU_CLR(i, &set);
  }
  return sched_setaffinity(0, sizeof set, &set) == 0;
}

// The traits of a library thread that the calling thread starts.
struct Asked {
  int lower_by;
  Traits traits;
  tests::Gate done;
};
Traits traits_of_ours(int lower_by) {
  Asked asked{.lower_by = lower_by, .traits = {}, .done = {}};
  const auto body = [](void* of) {
    auto& mine = *static_cast<Asked*>(of);
    lower_priority(mine.lower_by);
    mine.traits = Traits::here();
    mine.done.give();
  };
  if (start_background_thread(body, &asked, 128 << 10) != 0) return {};
  asked.done.take();
  return asked.traits;
}

// Two threads, the second started by the first.
class Pair final : public ThreadCrew {
 public:
  explicit Pair(int nice) : ThreadCrew({.nice = nice, .shares_table = true}) {}
  bool start() { return start_thread(may_change_traits()) == 0; }
  Traits traits[2];

 private:
  void work(unsigned number) override {
    traits[number] = Traits::here();
    if (number == 0) start();
  }
};

// The kernel may refuse this process a real-time policy, or a niceness below 0.
bool may_rise() {
  return tests::run_in_child([] {
           return set_policy_here(SCHED_FIFO, 1) && setpriority(PRIO_PROCESS, 0, -5) == 0 ? 0 : 1;
         }) == 0;
}

TEST(StarterTraits, LibraryThreadsInheritNoneOfAnotherThread) {
  if (!may_rise()) GTEST_SKIP() << "no CAP_SYS_NICE";
  for (const int policy : {SCHED_FIFO, SCHED_RR}) {
    EXPECT_EQ(tests::run_in_child([policy] {
                const Traits main = Traits::here();
                Traits ours;
                bool is_set = false;
                std::thread([&] {
                  is_set = set_policy_here(policy, 20) &&
                           setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), -5) == 0 &&
                           pin_here() && prctl(PR_SET_TIMERSLACK, k_odd_slack_ns) == 0;
                  ours = traits_of_ours(0);
                }).join();
                CHILD_CHECK(is_set);
                CHILD_CHECK(ours.policy == SCHED_OTHER);
                CHILD_CHECK(ours.niceness == main.niceness);
                CHILD_CHECK(ours.processors == main.processors);
                CHILD_CHECK(ours.slack == k_default_slack_ns);
                return 0;
              }),
              0);
  }
}

TEST(StarterTraits, LibraryThreadsFollowTheMainThread) {
  if (!may_rise()) GTEST_SKIP() << "no CAP_SYS_NICE";
  EXPECT_EQ(tests::run_in_child([] {
              CHILD_CHECK(setpriority(PRIO_PROCESS, 0, -5) == 0 && pin_here() &&
                          set_policy_here(SCHED_RR, 20));
              const Traits plain = traits_of_ours(0), low = traits_of_ours(5);
              CHILD_CHECK(plain.policy == SCHED_OTHER && low.policy == SCHED_BATCH);
              CHILD_CHECK(plain.niceness == -5 && low.niceness == 0);
              CHILD_CHECK(plain.processors == 1 && low.processors == 1);
              return 0;
            }),
            0);
}

TEST(StarterTraits, CrewThatSharesAnFdTableIsLoweredOnce) {
  EXPECT_EQ(tests::run_in_child([] {
              const CrewPtr<Pair> pair(new Pair(3));
              CHILD_CHECK(pair->start() && pair->wait_for_end(60'000'000'000));
              const int before = Traits::here().niceness;
              CHILD_CHECK(pair->traits[0].niceness == before + 3);
              CHILD_CHECK(pair->traits[1].niceness == before + 3);
              return 0;
            }),
            0);
}

// The answer is read from a file. A library thread inherits the answer from its starter, because it
// may itself start many threads.
TEST(StarterTraits, LibraryThreadsInheritTheAnswerWithoutReadingAFile) {
  EXPECT_EQ(tests::run_in_child([] {
              struct Answers {
                bool before = false, after = false;
                tests::Gate asked, go_on, done;
              } answers;
              const auto body = [](void* of) {
                auto& mine = *static_cast<Answers*>(of);
                mine.before = may_change_traits();
                mine.asked.give();
                mine.go_on.take();
                mine.after = may_change_traits();
                mine.done.give();
              };
              CHILD_CHECK(start_background_thread(body, &answers, 128 << 10) == 0);
              answers.asked.take();
              if (!may_change_traits()) return 0;  // the test itself is in a sandbox
              const rlimit none{1, 1};             // poll() waits for one fd
              CHILD_CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
              CHILD_CHECK(!may_change_traits());
              answers.go_on.give();
              answers.done.take();
              CHILD_CHECK(answers.after && answers.before);
              return 0;
            }),
            0);
}

// `chrt -i 0` and `ionice -c 3` select the lowest priorities. Lowering the priority of such a
// thread must not raise it.
TEST(StarterTraits, LowerIsNeverHigher) {
  EXPECT_EQ(tests::run_in_child([] {
              CHILD_CHECK(set_policy_here(SCHED_IDLE, 0) && set_disk_here(IOPRIO_CLASS_IDLE, 0));
              const Traits low = traits_of_ours(1);
              CHILD_CHECK(low.policy == SCHED_IDLE && low.disk_class == IOPRIO_CLASS_IDLE);
              return 0;
            }),
            0);
}

TEST(StarterTraits, BackgroundWorkLowersAChosenDiskPriority) {
  EXPECT_EQ(tests::run_in_child([] {
              CHILD_CHECK(set_disk_here(IOPRIO_CLASS_BE, 0));
              const Traits plain = traits_of_ours(0), low = traits_of_ours(1);
              CHILD_CHECK(plain.disk_level == 0);
              CHILD_CHECK(low.disk_class == IOPRIO_CLASS_BE && low.disk_level == 7);
              return 0;
            }),
            0);
}

}  // namespace
}  // namespace cube::prefetch
