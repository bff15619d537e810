#include "cache/tier/shared/cluster_record.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "cache/base/hash.h"
#include "cache/tier/shared/cluster_mounts.h"

namespace cube::cache {
namespace {

constexpr std::uint64_t k_second_ns = 1'000'000'000;

FileStat stat_of(std::uint64_t size) {
  FileStat stat{};
  stat.inode = 42;
  stat.size = size;
  stat.mode = S_IFREG | 0644;
  stat.device_major = 7;
  stat.modified = stat.changed = {.seconds = 1000, .nanoseconds = 123456789, .reserved = 0};
  return stat;
}

// A record of a file of `size` bytes, in the layout of the region.
class InRegion {
 public:
  explicit InRegion(std::uint64_t size, const FileStat& stat) {
    const RecordPlan plan = plan_record(0, k_path.size(), size);
    memory_.resize(plan.end + 4096);
    start_ = reinterpret_cast<std::byte*>(
        (reinterpret_cast<std::uintptr_t>(memory_.data()) + 4095) / 4096 * 4096);
    for (std::uint64_t i = 0; i < size; ++i) start_[plan.data + i] = static_cast<std::byte>(i * 7);
    RecordContent content{.path = k_path, .stat = stat};
    content.physical = content.prefetched = true;
    content.fetched_ns = 5000 * k_second_ns;
    content.verified_ns = 99;
    content.views = 1;
    write_record(start_, plan, content);
    record_ = reinterpret_cast<Record*>(start_ + plan.start);
    record_->stale = 0;
  }
  static constexpr std::string_view k_path = "/mnt/data/d/file";
  Record& operator*() const { return *record_; }

 private:
  std::vector<std::byte> memory_;
  std::byte* start_;
  Record* record_;
};

TEST(ClusterRecordStat, DiffersOnAnotherNodeOnlyInTheInode) {
  const FileStat one = stat_of(10);
  FileStat other = one;
  other.inode = 43;
  EXPECT_TRUE(is_same_but_inode(one, other));
  ++other.changed.nanoseconds;
  EXPECT_FALSE(is_same_but_inode(one, other)) << "rewritten, and its time set back";
  other = one;
  ++other.modified.nanoseconds;
  EXPECT_FALSE(is_same_but_inode(one, other));
  EXPECT_FALSE(is_same_but_inode(one, stat_of(11)));
}

struct alignas(64) Line {
  std::byte bytes[64];
};
struct Wire {
  std::vector<Line> memory;
  std::size_t size = 0;
  std::span<std::byte> bytes() { return {memory.data()->bytes, size}; }
};

Wire wire_of(const Record& record, const ClusterTags& tags = {.job = 11, .node = 22}) {
  const auto head = std::make_unique<ClusterHead>();
  write_cluster_head(content_for_cluster(record, "d/file"), tags, *head);
  Wire wire;
  wire.size = head->size + record.data_size + head->padding;
  wire.memory.resize(wire.size / 64 + 1);
  std::memcpy(wire.bytes().data(), head->bytes, head->size);
  std::memcpy(wire.bytes().data() + head->size, record.data(), record.data_size);
  return wire;
}

TEST(ClusterRecord, SurvivesARoundTrip) {
  for (const std::uint64_t size : {0, 1, 63, 64, 5000, 40000, 200000}) {
    const InRegion record(size, stat_of(size));
    Wire wire = wire_of(*record);
    const Record* const back = check_cluster_value(wire.bytes(), RecordKind::file, "d/file");
    ASSERT_NE(back, nullptr) << size;
    EXPECT_EQ(back->path(), "d/file");
    EXPECT_EQ(back->data_size, size);
    EXPECT_EQ(std::memcmp(back->data(), (*record).data(), size), 0);
    EXPECT_EQ(std::memcmp(&back->stat, &(*record).stat, sizeof(FileStat)), 0);
    EXPECT_EQ(back->fetched_ns, (*record).fetched_ns);
    EXPECT_TRUE(back->is_physical());
    EXPECT_FALSE(back->is_prefetched());
    EXPECT_EQ(back->job_tag, 11U);
    EXPECT_EQ(back->node_tag, 22U);
  }
}

// Flips each bit of the header, of the path and of the zeros, and changes each byte of the data.
TEST(ClusterRecord, RejectsEveryFlippedBit) {
  const InRegion record(300, stat_of(300));
  Wire wire = wire_of(*record);
  ASSERT_NE(check_cluster_value(wire.bytes(), RecordKind::file, "d/file"), nullptr);
  for (std::size_t at = 0; at < wire.size; ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      wire.bytes()[at] ^= std::byte(1 << bit);
      EXPECT_EQ(check_cluster_value(wire.bytes(), RecordKind::file, "d/file"), nullptr)
          << at << " bit " << bit;
      wire.bytes()[at] ^= std::byte(1 << bit);
    }
  }
  EXPECT_NE(check_cluster_value(wire.bytes(), RecordKind::file, "d/file"), nullptr);
}

TEST(ClusterRecord, ACutOrAnotherPathIsRefused) {
  const InRegion record(300, stat_of(300));
  Wire wire = wire_of(*record);
  for (std::size_t size = 0; size < wire.size; ++size)
    EXPECT_EQ(check_cluster_value(wire.bytes().first(size), RecordKind::file, "d/file"), nullptr);
  for (const char* const path : {"d/filf", "d/fil", "d/file2", "", "/mnt/data/d/file"})
    EXPECT_EQ(check_cluster_value(wire.bytes(), RecordKind::file, path), nullptr) << path;
}

TEST(ClusterRecord, OnlyOldFilesReadableByAllAreShared) {
  EXPECT_TRUE(may_be_shared(*InRegion(9, stat_of(9)), false));
  FileStat secret = stat_of(9);
  secret.mode = S_IFREG | 0640;
  EXPECT_FALSE(may_be_shared(*InRegion(9, secret), false));
  EXPECT_TRUE(may_be_shared(*InRegion(9, secret), true));
  FileStat young = stat_of(9);
  young.modified.seconds = 4999;
  EXPECT_FALSE(may_be_shared(*InRegion(9, young), true)) << "changed within 2 s before it was read";
  young.modified.seconds = 4998;
  EXPECT_TRUE(may_be_shared(*InRegion(9, young), true));
  const InRegion changed(9, stat_of(9));
  (*changed).stale = Record::k_changed;
  EXPECT_FALSE(may_be_shared(*changed, true));
  const InRegion others(9, stat_of(9));
  (*others).flags |= Record::k_flag_from_cluster;
  EXPECT_FALSE(may_be_shared(*others, true));
  const InRegion packed(9, stat_of(9));
  (*packed).origin = 5;
  EXPECT_FALSE(may_be_shared(*packed, true));
}

TEST(ClusterMounts, AreStableAfter16FilesThatAgree) {
  ClusterMounts mounts;
  const FileStat remote = stat_of(1);
  FileStat here = remote;
  here.device_major = 99;
  here.mount_id = 5;
  const std::uint64_t row = mounts.row_of(1);
  ASSERT_EQ(mounts.row_of(1), row);
  for (int i = 0; i < 15; ++i) mounts.note(row, remote, here);
  EXPECT_FALSE(mounts.is_stable(row) || mounts.are_any_stable());
  mounts.note(row, remote, here);
  ASSERT_TRUE(mounts.is_stable(row) && mounts.are_any_stable());
  FileStat served = remote;
  mounts.localise(row, served);
  EXPECT_TRUE(served.same_file(here));
  EXPECT_EQ(served.mount_id, 5U);
  EXPECT_FALSE(mounts.is_stable(mounts.row_of(3))) << "another mount";
  FileStat moved = here;
  moved.inode = 43;
  mounts.note(row, remote, moved);
  EXPECT_FALSE(mounts.is_stable(row));
  for (int i = 0; i < 100; ++i) mounts.note(row, remote, here);
  EXPECT_FALSE(mounts.is_stable(row)) << "never again";
}

TEST(ClusterMounts, InodesAreTrueOnDisksAndStableMounts) {
  ClusterMounts mounts;
  const FileStat remote = stat_of(1);
  FileStat other = remote;
  other.inode = 43;
  const std::uint64_t own = mounts.row_of(1, /*is_own_machine=*/true), anothers = mounts.row_of(3);
  EXPECT_TRUE(mounts.are_inodes_true(own, remote, other));
  EXPECT_FALSE(mounts.are_inodes_true(anothers, remote, other))
      << "the number of its device is another machine's";
  other.device_major = 99;
  EXPECT_TRUE(mounts.are_inodes_true(own, remote, other)) << "another tree, on a disk";
  other.device_major = 0;
  EXPECT_FALSE(mounts.are_inodes_true(own, remote, other))
      << "two mounts of this machine that may make numbers up";
  mounts.note(own, remote, other);
  for (int i = 0; i < 20; ++i) mounts.note(anothers, remote, remote);
  EXPECT_TRUE(mounts.are_inodes_true(anothers, remote, other)) << "its numbers are stable";
  for (std::uint64_t tag = 10; tag < 200; ++tag) mounts.row_of(tag << 1);
  const std::uint64_t none = mounts.row_of(1000, /*is_own_machine=*/true);
  other.device_major = remote.device_major;
  EXPECT_TRUE(mounts.are_inodes_true(none, remote, other)) << "without a row, too";
  EXPECT_FALSE(mounts.is_stable(none));
  mounts.note(none, remote, other);
}

TEST(ClusterMounts, AreNotStableIfTheyHaveManyDevicesHere) {
  ClusterMounts mounts;
  const FileStat remote = stat_of(1);
  const std::uint64_t row = mounts.row_of(1);
  for (std::uint32_t i = 0; i < 32; ++i) {
    FileStat here = remote;
    here.device_major = 90 + i / 20;
    mounts.note(row, remote, here);
  }
  EXPECT_FALSE(mounts.is_stable(row));
  for (std::uint64_t tag = 10; tag < 200; ++tag) mounts.row_of(tag << 1);
  EXPECT_EQ(mounts.row_of(1000), 0U) << "there is no row left";
  EXPECT_FALSE(mounts.is_stable(0));
}

}  // namespace
}  // namespace cube::cache
