// A pack and a mount behind one interface. Also which of their files the cache serves to which
// processes.
#include "cache/origin/origin.h"

#include <fcntl.h>

#include <cerrno>

#include "cache/file_cache.h"
#include "cache/origin/origins.h"
#include "tests/pack/sample_tree.h"
#include "tests/support/test_region.h"

namespace cube::cache {
namespace {

using base::Counter;
using tests::SampleTree;

constexpr std::uint64_t k_most = 64 << 10;

struct OriginsTest : testing::Test {
  SampleTree tree;
  std::unique_ptr<Origins> origins;
  base::Stats stats;

  // The pack appears at the path of its tree. The tree may change afterwards.
  void pack_it() {
    ASSERT_EQ(tree.make(), "");
    std::vector<std::string> errors;
    origins = Origins::open({{.prefix = tree.root, .file = tree.pack}}, {}, errors);
    ASSERT_TRUE(errors.empty()) << errors.front();
  }
  std::string in(const std::string& name) const { return tree.root + "/" + name; }
  base::Result<void> open(const std::string& path, OpenedPlace& place) {
    return origins->of(path).open(
        {.key = path, .path = path.c_str(), .flags = O_RDONLY, .most = k_most, .stats = &stats},
        place);
  }
  std::uint64_t count(Counter counter) const {
    return stats.counters[static_cast<std::size_t>(counter)].load();
  }
  static std::string bytes_of(Opened& opened) {
    std::string bytes(opened.file().stat.size, '\0');
    return opened.read_whole(reinterpret_cast<std::byte*>(bytes.data())) ? bytes : "not read";
  }
  static std::string bytes_of(int fd) {
    const base::UniqueFd own(fd);
    std::string bytes(1 << 20, '\0');
    const ssize_t n = read(own.get(), bytes.data(), bytes.size());
    return bytes.substr(0, n > 0 ? static_cast<std::size_t>(n) : 0);
  }
};

TEST_F(OriginsTest, ServeThePackAtItsPrefixAndMountsOutside) {
  tree.write("f", "in the pack");
  pack_it();
  const Origin& pack = origins->of(in("f"));
  EXPECT_NE(pack.id(), k_mounts);
  EXPECT_EQ(&origins->of(tree.root), &pack);
  EXPECT_TRUE(pack.traits().is_immutable);
  EXPECT_EQ(&origins->of(tree.root + "2/f"), &mount_origin());
  EXPECT_EQ(mount_origin().id(), k_mounts);
  EXPECT_FALSE(mount_origin().traits().is_immutable);
  const auto again = origins->reopened();
  EXPECT_EQ(again->of(in("f")).id(), pack.id()) << "the same file";
}

TEST_F(OriginsTest, GiveTheBytesOfAFileAndAFdOfIt) {
  tree.write("f", "in the pack");
  pack_it();
  tree.write("f", "on the mount");
  OpenedPlace place;
  ASSERT_TRUE(open(in("f"), place));
  EXPECT_EQ(place.opened()->file().origin, origins->of(in("f")).id());
  EXPECT_EQ(bytes_of(*place.opened()), "in the pack");
  EXPECT_EQ(count(Counter::origin_reads), 1U);
  EXPECT_EQ(count(Counter::origin_opens), 0U);
  const auto copy = place.opened()->hand_over(O_RDONLY);
  ASSERT_TRUE(copy);
  EXPECT_EQ(bytes_of(*copy), "in the pack");

  const std::string path = in("f");
  ASSERT_TRUE(mount_origin().open(
      {.key = path, .path = path.c_str(), .flags = O_RDONLY, .stats = &stats}, place));
  EXPECT_EQ(place.opened()->file().origin, k_mounts);
  EXPECT_EQ(bytes_of(*place.opened()), "on the mount");
  EXPECT_EQ(count(Counter::origin_opens), 1U);
  const auto fd = place.opened()->hand_over(O_RDONLY);
  ASSERT_TRUE(fd);
  EXPECT_EQ(bytes_of(*fd), "on the mount");
}

TEST_F(OriginsTest, ReportDirectoriesAndMissingPaths) {
  tree.write("d/f", "1");
  tree.write("large", std::string(4 * k_most, 'x'));
  pack_it();
  OpenedPlace place;
  const auto directory = open(in("d"), place);
  ASSERT_FALSE(directory);
  EXPECT_EQ(directory.error().value, EISDIR);
  EXPECT_TRUE(S_ISDIR(place.opened()->file().stat.mode));
  EXPECT_EQ(open(in("none"), place).error().value, ENOENT);
  EXPECT_FALSE(origins->of(in("none")).traits().knows_all_names) << "the kernel may have it";
  ASSERT_TRUE(open(in("large"), place));
  std::string room(4 * k_most, '\0');
  EXPECT_EQ(place.opened()->read_whole(reinterpret_cast<std::byte*>(room.data())).error().value,
            EFBIG);
  const auto copy = place.opened()->hand_over(O_RDONLY);
  ASSERT_TRUE(copy);
  EXPECT_EQ(bytes_of(*copy), tree.files["large"]);
}

TEST_F(OriginsTest, AdjacentFilesOfAPackTakeOneRequest) {
  for (int i = 0; i < 40; ++i)
    tree.write("d/f" + std::to_string(100 + i), tests::content_of(100 + i * 1500, i));
  tree.write("e/last", "behind them");
  pack_it();
  const Origin& pack = origins->of(tree.root);
  std::vector<std::string> paths;
  for (const auto& [name, content] : tree.files) paths.push_back(in(name));
  const OriginSpan first = pack.place_of(paths[0]), last = pack.place_of(paths[39]);
  ASSERT_FALSE(first.is_empty());
  ASSERT_EQ(first.origin, pack.id());
  const OriginSpan together{first.origin, first.begin, last.end() - first.begin};
  OpenedPlace place;
  ASSERT_TRUE(pack.open({.key = paths[0],
                         .path = paths[0].c_str(),
                         .most = k_most,
                         .together = together,
                         .place = first,
                         .stats = &stats},
                        place));
  EXPECT_EQ(bytes_of(*place.opened()), tree.files["d/f100"]);
  OriginSpan before = first;
  for (int i = 1; i < 40; ++i) {
    const OriginSpan at = pack.place_of(paths[i]);
    EXPECT_GE(at.begin, before.end()) << "in the order of the pack";
    ASSERT_TRUE(place.opened()->move_to(paths[i], at)) << paths[i];
    const std::string& content = tree.files["d/f" + std::to_string(100 + i)];
    EXPECT_EQ(place.opened()->file().stat.size, content.size());
    EXPECT_EQ(bytes_of(*place.opened()), content);
    EXPECT_EQ(place.opened()->data_hash(), base::hash_bytes(content.data(), content.size()));
    before = at;
  }
  EXPECT_EQ(count(Counter::origin_reads), 1U);
  EXPECT_EQ(count(Counter::origin_bytes), together.bytes);

  EXPECT_FALSE(place.opened()->move_to(in("e/last"), pack.place_of(in("e/last"))))
      << "it was not read with them";
  EXPECT_FALSE(place.opened()->move_to(paths[3], pack.place_of(paths[4]))) << "another lies there";
  EXPECT_NE(place.opened()->read_whole(nullptr).error().value, 0);
  EXPECT_FALSE(place.opened()->move_to(paths[3], {first.origin, first.begin + 64, 256}))
      << "no record begins there";
  EXPECT_TRUE(place.opened()->move_to(paths[3], pack.place_of(paths[3])));
  EXPECT_TRUE(pack.place_of(in("none")).is_empty());
  EXPECT_TRUE(mount_origin().place_of(paths[0]).is_empty());
}

TEST_F(OriginsTest, DamagedFileOfACombinedReadIsNotServed) {
  for (int i = 0; i < 3; ++i) tree.write("d/f" + std::to_string(i), tests::content_of(5000, i));
  pack_it();
  const std::string whole = tests::bytes_of(tree.pack);
  struct stat before {};
  ASSERT_EQ(::stat(tree.pack.c_str(), &before), 0);
  const int fd = ::open(tree.pack.c_str(), O_WRONLY | O_CLOEXEC);
  ASSERT_EQ(pwrite(fd, "?", 1, static_cast<off_t>(whole.find(tree.files["d/f1"]) + 4000)), 1);
  // Restores the times, so that nothing reveals the change, as if the disk were faulty.
  const timespec times[2] = {{0, UTIME_OMIT}, before.st_mtim};
  ASSERT_EQ(futimens(fd, times), 0);
  close(fd);
  const Origin& pack = origins->of(tree.root);
  const OriginSpan first = pack.place_of(in("d/f0")), second = pack.place_of(in("d/f1")),
                   third = pack.place_of(in("d/f2"));
  const std::string path = in("d/f0");
  OpenedPlace place;
  ASSERT_TRUE(pack.open({.key = path,
                         .path = path.c_str(),
                         .most = k_most,
                         .together = {first.origin, first.begin, third.end() - first.begin},
                         .place = first},
                        place));
  EXPECT_FALSE(place.opened()->move_to(in("d/f1"), second));
  EXPECT_TRUE(place.opened()->move_to(in("d/f2"), third));
  EXPECT_EQ(bytes_of(*place.opened()), tree.files["d/f2"]);
}

TEST_F(OriginsTest, OpenFilesForACallerThatCountsNoRequests) {
  tree.write("f", "in the pack");
  pack_it();
  const std::string path = in("f");
  OpenedPlace place;
  for (const Origin* origin : {&origins->of(path), &mount_origin()}) {
    ASSERT_TRUE(origin->open({.key = path, .path = path.c_str(), .most = k_most}, place));
    EXPECT_EQ(bytes_of(*place.opened()), "in the pack");
    EXPECT_TRUE(place.opened()->is_unchanged());
  }
}

TEST_F(OriginsTest, EachServesOnlyItsOwnRecords) {
  tree.write("f", "in the pack");
  pack_it();
  tree.write("f", "on the mount");
  tests::TestCache cache;
  const auto served = [&] {
    const OpenOutcome outcome = cache->open(tests::request_for(in("f")));
    return outcome.pin ? std::string(tests::bytes_of(*outcome.pin)) : "not served";
  };
  for (int round = 0; round < 3; ++round) {
    cache->use_origins(origins.get());
    EXPECT_EQ(served(), "in the pack") << round;
    EXPECT_EQ(served(), "in the pack") << round;
    cache->use_origins(nullptr);
    EXPECT_EQ(served(), "on the mount") << round;
    EXPECT_EQ(served(), "on the mount") << round;
  }
  EXPECT_GE(cache.count(Counter::hits_ram), 6U) << "the second of each pair";
}

}  // namespace
}  // namespace cube::cache
