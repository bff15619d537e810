#include "cache/base/path.h"

#include <gtest/gtest.h>

namespace cube::base::testing {
namespace {

TEST(Path, IsBelowADirectoryByWholeNames) {
  EXPECT_TRUE(is_below("/mnt/a/b", "/mnt/a"));
  EXPECT_TRUE(is_below("/mnt/a/b/c", "/mnt/a"));
  EXPECT_FALSE(is_below("/mnt/ab", "/mnt/a")) << "another name that begins alike";
  EXPECT_FALSE(is_below("/mnt/a", "/mnt/a")) << "the directory itself";
  EXPECT_FALSE(is_below("/mnt", "/mnt/a")) << "above it";
  EXPECT_FALSE(is_below("", "/mnt/a"));
}

TEST(Path, EveryOtherPathIsBelowTheRoot) {
  EXPECT_TRUE(is_below("/a", "/"));
  EXPECT_TRUE(is_below("/a/b", "/"));
  EXPECT_FALSE(is_below("/", "/"));
}

TEST(Path, IsAtOrBelowADirectory) {
  EXPECT_TRUE(is_at_or_below("/mnt/a", "/mnt/a"));
  EXPECT_TRUE(is_at_or_below("/mnt/a/b", "/mnt/a"));
  EXPECT_TRUE(is_at_or_below("/", "/"));
  EXPECT_TRUE(is_at_or_below("/a", "/"));
  EXPECT_FALSE(is_at_or_below("/mnt/ab", "/mnt/a"));
  EXPECT_FALSE(is_at_or_below("/mnt", "/mnt/a"));
}

}  // namespace
}  // namespace cube::base::testing
