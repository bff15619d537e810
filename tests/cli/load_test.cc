// The fetches of `cubeshim warmup`.
#include "shim/cli/warmup/load.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <string>
#include <thread>

#include "shim/cli/interrupt.h"
#include "tests/support/child.h"
#include "tests/support/sanitizers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_region.h"

namespace cube::cli {
namespace {

// In a child, because the interrupt remains noted in the process.
TEST(Load, CountsFilesThatWereRefusedBeforeAnInterrupt) {
  if (tests::k_tsan) GTEST_SKIP() << "ThreadSanitizer starts no threads in a forked child";
  const int status = tests::run_in_child([] {
    const tests::TestCache cache;
    const tests::TempDir dir;
    NamedInput input;
    input.paths = {dir.write("f", "content")};
    std::string why;
    CHILD_CHECK(input.prepare({dir.path()}, why));
    const auto paths = NamedPaths::open(input, why);
    CHILD_CHECK(paths != nullptr);
    prefetch::PlannedFile file;
    CHILD_CHECK(paths->next(file));
    CHILD_CHECK(unlink(file.path.c_str()) == 0);
    prefetch::Prefetcher::Options options;
    options.engine = base::EngineKind::threads;
    const auto prefetcher = prefetch::Prefetcher::make(*cache.cache, options, why);
    CHILD_CHECK(prefetcher != nullptr);
    CHILD_CHECK(prefetcher->offer(file));
    while (!prefetcher->is_idle()) std::this_thread::yield();
    note_interrupts();
    raise(SIGINT);
    Skipped skipped;
    Progress progress({.quiet = true});
    load(*paths, *prefetcher, /*census=*/nullptr, skipped, progress);
    const auto rows = skipped.rows(*paths);
    CHILD_CHECK(rows.size() == 1);
    CHILD_CHECK(rows[0].reason == "missing" && rows[0].count == 1);
    return 0;
  });
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace cube::cli
