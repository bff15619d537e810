// Many threads, signal handlers, and fds that are closed while threads read them.
#include <filesystem>

#include "tests/support/preload_job.h"

using cube::preload::Job;

TEST(Threads, CanOpenReadMapAndCloseTheSameFiles) {
  Job job;
  expect_well(job.helper({"threads", job.data(), "10", "1500"}));
  EXPECT_EQ(job.report("misses"), 10) << job.report_text();
  EXPECT_EQ(job.report("hits.ram"), 8 * 1500 - 10) << job.report_text();
}

TEST(Threads, WorkInModeReal) {
  Job job;
  job.env["CUBESHIM_MODE"] = "real";
  expect_well(job.helper({"threads", job.data(), "10", "300"}));
}

TEST(Threads, ReadRightBytesIfTheRegionIsTooSmall) {
  Job job(600);
  job.env["CUBESHIM_RAM"] = "8M";
  expect_well(job.helper({"threads", job.data(), "600", "600"}));
  EXPECT_GT(job.report("bypassed.full"), 0) << job.report_text();
}

TEST(Threads, CanCloseFilesThatOthersRead) {
  Job job;
  expect_well(job.helper({"close-race", job.data(), "10", "20000"}));
}

TEST(Threads, CanCloseFilesThatOthersOpen) {
  Job job;
  expect_well(job.helper({"hand-over", job.data(), "10", "30000"}));
  // The last close is also counted.
  EXPECT_EQ(job.report("misses") + job.report("hits.ram"), 30000) << job.report_text();
  EXPECT_EQ(job.report("calls_saved"), 30000) << job.report_text();
}

TEST(Threads, FreeTheirFdsAndMemoryWhenTheyEnd) {
  Job job;
  expect_well(job.helper({"short-threads", job.data(), "10", "10000"}));
  EXPECT_EQ(job.report("hits.ram"), 3 * 10000 + 1 - 10) << job.report_text();
}

TEST(Threads, ReuseFreedFdsLowestFirst) {
  Job job;
  expect_well(job.helper({"left-fds", job.data(), "10"}));
}

TEST(Threads, OfTheLibraryUseNoRangeUnmappedByTheProgram) {
  Job job;
  job.env["CUBESHIM_DISK_DIR"] = job.path("disk");
  std::filesystem::create_directory(job.path("disk"));
  expect_well(job.helper({"holes", job.data(), "10"}));
}

TEST(Signals, HandlersCanOpenAndReadAtAnyMoment) {
  Job job(300);
  expect_well(job.helper({"signals", job.data(), "300"}));
}

TEST(Signals, HandlersCanOpenAndReadInModeReal) {
  Job job(300);
  job.env["CUBESHIM_MODE"] = "real";
  expect_well(job.helper({"signals", job.data(), "300"}));
}

// The program's libgcc unwinds the threads' frames, not a libgcc of the library.
TEST(Threads, AreCancelledInCallsThatLibcAnswers) {
  Job job;
  expect_well(job.helper({"cancel", "/etc/passwd", "150"}));
  expect_well(job.helper({"cancel", job.data() + "/f0", "150"}));
  job.env["CUBESHIM_MODE"] = "real";
  expect_well(job.helper({"cancel", job.data() + "/f0", "150"}));
  job.env["CUBESHIM_MODE"] = "off";
  expect_well(job.helper({"cancel", job.data() + "/f0", "150"}));
}

TEST(Threads, EndInAHandlerThatHasInterruptedTheLibrary) {
  for (const char* const how : {"exit", "cancel"}) {
    for (const char* const mode : {"virtual", "real"}) {
      SCOPED_TRACE(std::string(how) + " in mode " + mode);
      Job job;
      job.env["CUBESHIM_MODE"] = mode;
      expect_well(job.helper({"ended", how, job.data(), "10", "500"}));
    }
  }
}

TEST(Signals, HandlerDuringACloseLeavesTheLowestFdFree) {
  Job job;
  expect_well(job.helper({"lowest", job.data() + "/f0", "3000"}));
}

// If a process's first thread has ended, libc ends the process when its last thread ends. libc also
// counts the library's threads.
TEST(Threads, LastThreadOfTheProgramEndsTheProcessAfterTheFirst) {
  for (const char* const from : {"main", "fork"}) {
    for (const char* const how : {"pthread_exit", "thrd_exit", "cancel", "syscall"}) {
      SCOPED_TRACE(std::string(how) + " in " + from);
      Job job;
      job.env["CUBESHIM_DISK_DIR"] = job.path("disk");
      // A bare system call ends the process without notice, so the next job removes the region.
      job.checks_region = std::string_view(how) != "syscall";
      std::filesystem::create_directory(job.path("disk"));
      expect_well(job.helper({"first-ends", how, job.data(), "10", from}));
    }
  }
}
