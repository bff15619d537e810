// A cache, a directory whose files are written, and a process that is stopped during a fetch.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "cache/file_cache.h"
#include "tests/support/child.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_region.h"
#include "tests/support/tracee.h"

namespace cube::cache {

struct WritersTest : testing::Test {
  tests::TempDir dir;
  tests::TestCache cache;

  static std::string bytes(const OpenOutcome& outcome) {
    return outcome.pin ? std::string(tests::bytes_of(*outcome.pin)) : "(no pin)";
  }
  std::string open(const std::string& path) const {
    const OpenOutcome outcome = cache->open(tests::request_for(path));
    if (outcome.kernel_fd >= 0) close(outcome.kernel_fd);
    return bytes(outcome);
  }
  static FileStat stat_of(const std::string& path) { return *stat_path(AT_FDCWD, path.c_str(), 0); }
  // A child that is stopped during a fetch: it has read and revalidated the old bytes, but
  // published nothing.
  tests::Tracee fetcher_that_has_read(const std::string& path) const {
    tests::Tracee child([&] {
      FileCache* const mine = tests::attach_cache(cache.config, cache.options.job);
      CHILD_CHECK(mine != nullptr);
      const OpenOutcome outcome = mine->open(tests::request_for(path));
      return bytes(outcome) == "old" ? 10 : outcome.kernel_fd >= 0 ? 20 : 30;
    });
    EXPECT_TRUE(child.to_exit_of(SYS_preadv));
    EXPECT_TRUE(child.to_exit_of(SYS_statx));
    return child;
  }
};

}  // namespace cube::cache
