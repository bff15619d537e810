// The hash is part of the data format, so its values must never change.
#include "cache/base/hash.h"

#include <gtest/gtest.h>

namespace cube::base {
namespace {

TEST(Hash, IsXxh3WithItsPublishedValues) {
  EXPECT_EQ(hash_bytes("", 0), 0x2d06800538d394c2ULL);
  EXPECT_EQ(hash_path("a"), 0xe6c632b61e964e1fULL);
  EXPECT_EQ(hash_path("abc"), 0x78af5f94892f3950ULL);
}

TEST(Hash, HashesAPathAsItsBytes) {
  const std::string_view path = "/mnt/data/train/n01440764/n01440764_10026.JPEG";
  EXPECT_EQ(hash_path(path), hash_bytes(path.data(), path.size()));
}

TEST(Hash, DistinguishesDeviceFromInode) {
  EXPECT_NE(hash_inode(1, 2), hash_inode(2, 1));
  EXPECT_EQ(hash_inode(1, 2), hash_inode(1, 2));
}

}  // namespace
}  // namespace cube::base
