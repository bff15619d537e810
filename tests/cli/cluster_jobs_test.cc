#include "shim/cli/warmup/cluster/cluster_jobs.h"

#include <gtest/gtest.h>

#include <thread>

namespace cube::cli {
namespace {

using std::chrono::milliseconds;

TEST(ClusterJobs, WakesAThreadThatWaitsForWork) {
  ClusterJobs jobs(100);
  prefetch::PlannedFile file;
  ASSERT_TRUE(jobs.offer(file));
  std::optional<ClusterJob> job = jobs.take();
  ASSERT_TRUE(job);
  std::optional<ClusterJob> again;
  std::thread waiting([&] { again = jobs.take(); });
  // By now the thread most likely waits, with no job and no time at which to wake up.
  std::this_thread::yield();
  jobs.again(std::move(*job), milliseconds(1));
  waiting.join();
  EXPECT_TRUE(again);
}

TEST(ClusterJobs, GivesBackTheMemoryOfAFile) {
  ClusterJobs jobs(100);
  ASSERT_TRUE(jobs.take_memory(60));
  ASSERT_TRUE(jobs.take_memory(40));
  jobs.give_memory(60);
  ASSERT_TRUE(jobs.take_memory(60));
  jobs.give_memory(40);
  jobs.give_memory(60);
  // A file that is larger than the whole room waits until no other file holds any.
  ASSERT_TRUE(jobs.take_memory(200));
}

}  // namespace
}  // namespace cube::cli
