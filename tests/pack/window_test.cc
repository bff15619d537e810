// The neighbours that one read of a pack fetches in addition to the requested file.
#include "cache/pack/pack_window.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "cache/pack/pack_neighbours.h"
#include "tests/pack/sample_tree.h"

namespace cube::cache {
namespace {

using tests::SampleTree;

constexpr std::uint64_t k_begin = 4096, k_end = (64 << 20) + 4096, k_us = 1000;
constexpr std::uint64_t k_first = 256 << 10;

PackSlot slot_at(std::uint64_t offset, std::uint64_t bytes = 4096) {
  return {.hash = 0, .offset = offset, .bytes = bytes};
}

struct PackWindowsTest : testing::Test {
  std::unique_ptr<PackWindows> windows = PackWindows::make(k_begin, k_end);

  bool is_alone(const PackSlot& slot) {
    const PackSpan span = windows->around(slot);
    return span.begin == slot.offset && span.bytes == slot.bytes;
  }
  void know_latency(std::uint64_t ns = 300 * k_us) {
    const PackSlot slot = slot_at(k_begin);
    windows->note_time(slot, {slot.offset, slot.bytes}, ns);
  }
  // The size of a window at a place that was not read yet.
  std::uint64_t size_now() {
    fresh_ += 4 << 20;
    return windows->around(slot_at(fresh_)).bytes;
  }
  void take_one(std::uint64_t ns) {
    fresh_ += 4 << 20;
    const PackSlot slot = slot_at(fresh_);
    windows->note_time(slot, windows->around(slot), ns);
  }

 private:
  std::uint64_t fresh_ = 0;
};

TEST_F(PackWindowsTest, FirstReadMeasuresTheCostOfASingleRecord) {
  EXPECT_TRUE(is_alone(slot_at(8 << 20)));
  EXPECT_TRUE(is_alone(slot_at(9 << 20)));
  know_latency();
  EXPECT_FALSE(is_alone(slot_at(8 << 20)));
}

TEST_F(PackWindowsTest, AWindowHoldsItsRecordAndIsTakenOnce) {
  know_latency();
  const PackSlot slot = slot_at((8 << 20) + 100'032);
  const PackSpan span = windows->around(slot);
  EXPECT_EQ(span.begin, 8U << 20);
  EXPECT_EQ(span.bytes, k_first);
  EXPECT_TRUE(is_alone(slot)) << "it was read, and is read again: there was no room";
  EXPECT_TRUE(is_alone(slot_at(8 << 20)));
  EXPECT_TRUE(is_alone(slot_at((8 << 20) + k_first - 64, 64)));
  EXPECT_FALSE(is_alone(slot_at((8 << 20) + k_first))) << "that is the next one";
}

TEST_F(PackWindowsTest, ARecordOnTheEdgeHasBothSidesOfIt) {
  know_latency();
  const PackSlot slot = slot_at((8 << 20) + k_first - 4096, 8192);
  const PackSpan span = windows->around(slot);
  EXPECT_EQ(span.begin, 8U << 20);
  EXPECT_EQ(span.bytes, 2 * k_first);
}

TEST_F(PackWindowsTest, NothingOutsideTheRecordsIsRead) {
  know_latency();
  EXPECT_EQ(windows->around(slot_at(k_begin + 64)).begin, k_begin);
  const PackSpan last = windows->around(slot_at(k_end - 4096));
  EXPECT_EQ(last.end(), k_end);
  EXPECT_EQ(last.begin, 64U << 20);
}

TEST_F(PackWindowsTest, ALargeRecordIsReadAlone) {
  know_latency();
  EXPECT_TRUE(is_alone(slot_at(8 << 20, k_first)));
}

TEST_F(PackWindowsTest, AWindowGrowsWhileItTakesLittleLonger) {
  know_latency();
  take_one(310 * k_us);
  EXPECT_EQ(size_now(), 2 * k_first);
  for (int i = 0; i < 5; ++i) take_one(310 * k_us);
  EXPECT_EQ(size_now(), PackWindows::k_most);
}

TEST_F(PackWindowsTest, WindowShrinksIfBandwidthIsTheBottleneck) {
  know_latency();
  take_one(500 * k_us);
  EXPECT_EQ(size_now(), k_first) << "neither";
  for (int i = 0; i < 5; ++i) take_one(1000 * k_us);
  EXPECT_EQ(size_now(), PackWindows::k_least);
}

TEST_F(PackWindowsTest, AdaptsToAnOriginThatBecomesSlower) {
  know_latency();
  for (int i = 0; i < 100; ++i) know_latency(3000 * k_us);
  take_one(3500 * k_us);
  EXPECT_EQ(size_now(), 2 * k_first);
}

TEST_F(PackWindowsTest, ForkedChildrenShareMeasurementsAndWindows) {
  know_latency();
  const PackSlot slot = slot_at(8 << 20);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(is_alone(slot) ? 1 : 0);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "the child takes the window";
  EXPECT_TRUE(is_alone(slot)) << "and has taken it for its parent, too";
}

struct PackNeighboursTest : testing::Test {
  SampleTree tree;
  std::unique_ptr<PackMount> mount;
  base::Scratch scratch;
  PackMount::Content content;

  void make() {
    ASSERT_EQ(tree.make(), "");
    std::string why;
    mount = PackMount::open({.prefix = "/data/set", .file = tree.pack}, why);
    ASSERT_NE(mount, nullptr) << why;
  }
  // The first read is of a single record.
  base::Result<void> read(const std::string& path) {
    return mount->read("/data/set/" + path, 16 << 20, scratch, content, PackMount::Reach::window);
  }
  // The names of unexpected files: missing, with other bytes, or present without being wanted.
  std::string wrong(const std::map<std::string, std::string>& expected) {
    const auto found = neighbours();
    std::string names;
    for (const auto& [path, bytes] : expected) {
      const auto at = found.find(path);
      if (at == found.end() || at->second != bytes)
        names += path + (at == found.end() ? " is missing\n" : " has other bytes\n");
    }
    for (const auto& [path, bytes] : found) {
      if (!expected.contains(path)) names += path + " is not wanted\n";
    }
    return names;
  }
  std::map<std::string, std::string> neighbours() {
    std::map<std::string, std::string> found;
    PackNeighbours all(*mount, content);
    std::string_view path;
    PackMount::Content one;
    while (all.next(path, one)) {
      EXPECT_TRUE(one.physical && one.stat.device_minor == mount->device_minor()) << path;
      const bool is_new =
          found.emplace(path, std::string(reinterpret_cast<const char*>(one.data), one.stat.size))
              .second;
      EXPECT_TRUE(is_new) << path;
    }
    return found;
  }
  // All regular files of the tree except one, as the program would name them.
  std::map<std::string, std::string> all_but(const std::string& path) const {
    std::map<std::string, std::string> files;
    for (const auto& [name, bytes] : tree.files) {
      if (name != path) files["/data/set/" + name] = bytes;
    }
    return files;
  }
  void damage(const std::string& text) {
    std::string whole = tests::bytes_of(tree.pack);
    const std::size_t at = whole.find(text);
    ASSERT_NE(at, std::string::npos);
    // Damages the file like a bad disk: the file's times show no write.
    struct stat before {};
    ASSERT_EQ(stat(tree.pack.c_str(), &before), 0);
    {
      std::fstream file(tree.pack, std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(static_cast<std::streamoff>(at));
      file.put(static_cast<char>(whole[at] ^ 1));
    }
    const timespec times[] = {before.st_atim, before.st_mtim};
    ASSERT_EQ(utimensat(AT_FDCWD, tree.pack.c_str(), times, 0), 0);
  }
  void fill_small() {
    for (int i = 0; i < 40; ++i)
      tree.write("d" + std::to_string(i % 3) + "/f" + std::to_string(i),
                 tests::content_of(100 * i, i + 1));
    std::filesystem::create_symlink("f0", tree.root + "/d0/link");
  }
};

TEST_F(PackNeighboursTest, RecordReadAloneHasNone) {
  fill_small();
  make();
  ASSERT_TRUE(read("d0/f0"));
  EXPECT_TRUE(neighbours().empty());
}

TEST_F(PackNeighboursTest, AllFilesOfTheWindowHaveTheirBytes) {
  fill_small();
  make();
  ASSERT_TRUE(read("d0/f0") && read("d1/f1"));
  EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(content.data), content.stat.size),
            tree.files["d1/f1"]);
  EXPECT_EQ(wrong(all_but("d1/f1")), "") << "no link, no directory";
}

TEST_F(PackNeighboursTest, ALinkLeadsToAWindow) {
  fill_small();
  make();
  ASSERT_TRUE(read("d0/f0") && read("d0/link"));
  EXPECT_FALSE(content.physical);
  EXPECT_EQ(wrong(all_but("d0/f0")), "");
}

TEST_F(PackNeighboursTest, PackWithinAFileIsNotReadAsRecords) {
  SampleTree inner;
  for (int i = 0; i < 60; ++i)
    inner.write("f" + std::to_string(i), tests::content_of(10'000, i + 77));
  ASSERT_EQ(inner.make(), "");
  tree.write("before", "1");
  for (int i = 0; i < 60; ++i) tree.write("f" + std::to_string(i), "of the same name");
  tree.write("inner.cube", tests::bytes_of(inner.pack));
  tree.write("zlast", "2");
  make();
  ASSERT_TRUE(read("before") && read("zlast"));
  ASSERT_NE(content.window, nullptr);
  const auto outer = mount->reader().find("inner.cube");
  ASSERT_TRUE(outer);
  ASSERT_GT(content.span.begin, outer->offset)
      << "the file itself cannot be seen, records within it can";
  ASSERT_LT(content.span.begin + 50'000, outer->end());
  EXPECT_EQ(wrong({}), "");
}

TEST_F(PackNeighboursTest, ADamagedNeighbourIsLeftOut) {
  fill_small();
  tree.write("d0/bad", "these bytes will be others");
  make();
  damage("these bytes will be others");
  ASSERT_TRUE(read("d0/f0") && read("d1/f1"));
  auto expected = all_but("d1/f1");
  expected.erase("/data/set/d0/bad");
  EXPECT_EQ(wrong(expected), "");
}

TEST_F(PackNeighboursTest, ADamagedFileIsAnErrorInAWindowToo) {
  fill_small();
  tree.write("d0/bad", "these bytes will be others");
  make();
  damage("these bytes will be others");
  ASSERT_TRUE(read("d0/f0"));
  const auto bad = read("d0/bad");
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().value, EIO);
}

TEST_F(PackNeighboursTest, LeaveOutRecordsThatTheWindowCutsOff) {
  for (int i = 0; i < 30; ++i)
    tree.write("f" + std::to_string(100 + i), tests::content_of(30'000, i + 1));
  make();
  ASSERT_TRUE(read("f100") && read("f115"));
  const auto found = neighbours();
  EXPECT_GE(found.size(), 5U);
  EXPECT_LE(found.size(), 9U) << "of 256 KiB";
  const auto all = all_but("f115");
  for (const auto& [path, bytes] : found) EXPECT_TRUE(bytes == all.at(path)) << path;
}

}  // namespace
}  // namespace cube::cache
