// A tier serves a user without an open, if the file's mode lets him read it.
#include "cache/tier/rights.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace cube::cache {
namespace {

bool may_be_read(mode_t mode, uid_t owner) {
  FileStat stat{};
  stat.mode = S_IFREG | mode;
  stat.user = owner;
  return cache::may_be_read(stat);
}

TEST(Rights, AreThoseOfTheOwnerOrOfAllOthers) {
  const uid_t self = geteuid(), stranger = self + 1;
  EXPECT_TRUE(may_be_read(0444, self));
  EXPECT_TRUE(may_be_read(0444, stranger));
  EXPECT_TRUE(may_be_read(0400, self));
  EXPECT_FALSE(may_be_read(0400, stranger));
  EXPECT_FALSE(may_be_read(0044, self));
  EXPECT_TRUE(may_be_read(0044, stranger));
  EXPECT_FALSE(may_be_read(0404, stranger)) << "its group may not";
  EXPECT_FALSE(may_be_read(0440, stranger));
}

}  // namespace
}  // namespace cube::cache
