// Nodes that share their files through a fake server.
#include "cache/tier/shared/cluster_tier.h"

#include <gtest/gtest.h>

#include "cache/tier/block_record.h"
#include "tests/cache/cluster/cluster_fixture.h"
#include "tests/support/blocks.h"
#include "tests/support/empty_tier.h"

namespace cube::cache {
namespace {

using base::Counter;

TEST(ClusterTier, ServesAFileOfOneNodeToAnother) {
  const SharedFiles files;
  const std::string path = files.write("f", "content");
  FakeMemcached server;
  ClusterNode first(files.dir.path(), server.name());
  EXPECT_EQ(first.open(path), "content");
  ASSERT_TRUE(comes_true([&] { return server.values() == 1; }));
  ClusterNode second(files.dir.path(), server.name());
  EXPECT_EQ(second.open(path), "content");
  EXPECT_EQ(second.count(Counter::hits_cluster), 1U);
}

// If the lease were kept, other nodes would wait for the file.
TEST(ClusterTier, ReturnsTheLeaseOfAnUnsharedFile) {
  const SharedFiles files;
  std::atomic<int> leases{0};
  FakeMemcached server([&](const std::string& line) -> std::optional<std::string> {
    leases += line.starts_with("mg") ? 1 : 0;
    return std::nullopt;
  });
  ClusterNode node(files.dir.path(), server.name());
  const auto is_given_back = [&](const std::string& path) {
    const int before = leases;
    node.open(path);
    return comes_true([&] { return leases > before && server.items().empty(); });
  };
  const std::string secret = files.write("secret", "content");
  ASSERT_EQ(chmod(secret.c_str(), 0600), 0);
  EXPECT_TRUE(is_given_back(secret));
  EXPECT_TRUE(is_given_back(files.dir.write("young", "content"))) << "of now";
  const std::string large = files.write("large", "");
  ASSERT_EQ(truncate(large.c_str(), static_cast<off_t>(node.cache.config.max_file) + 1), 0);
  EXPECT_TRUE(is_given_back(large));
  EXPECT_TRUE(is_given_back(files.dir / "missing"));
  ASSERT_EQ(mkdir((files.dir / "directory").c_str(), 0755), 0);
  EXPECT_TRUE(is_given_back(files.dir / "directory"));
  ASSERT_EQ(mkdir((files.dir / "hidden").c_str(), 0700), 0);
  EXPECT_TRUE(is_given_back(files.write("hidden/f", "content")));
  // A link leads past the directory that is closed to others.
  ASSERT_EQ(mkdir((files.dir / "hidden/open").c_str(), 0755), 0);
  const std::string below = files.write("hidden/open/f", "content");
  ASSERT_EQ(symlink("hidden/open", (files.dir / "link").c_str()), 0);
  EXPECT_TRUE(is_given_back(files.dir / "link/f"));
  ASSERT_EQ(symlink(below.c_str(), (files.dir / "alias").c_str()), 0);
  EXPECT_TRUE(is_given_back(files.dir / "alias"));
}

// Nodes of a job do not revalidate a record with the job's tag, so an older record has no tag.
TEST(ClusterTier, TagsNoRecordThatIsOlderThanTheJob) {
  for (const bool is_old : {false, true}) {
    SCOPED_TRACE(is_old);
    const SharedFiles files;
    FakeMemcached server;
    ClusterNode node(files.dir.path(), server.name(), 16 * tests::k_mib, "job");
    if (is_old) node.cache->region().header().doubted_ns = UINT64_MAX;
    EXPECT_EQ(node.open(files.write("f", "content")), "content");
    ASSERT_TRUE(comes_true([&] { return server.values() == 1; }));
    std::uint64_t tag = 0;
    std::memcpy(&tag, server.items().begin()->second.value.data() + offsetof(Record, job_tag),
                sizeof tag);
    EXPECT_EQ(tag == 0, is_old);
  }
}

// The server answers reads but refuses records.
TEST(ClusterTier, ReturnsTheLeaseOfARefusedRecord) {
  for (const char* const refusal : {"SERVER_ERROR out of memory storing object\r\n",
                                    "SERVER_ERROR object too large for cache\r\n"}) {
    const SharedFiles files;
    std::atomic<int> offers{0};
    FakeMemcached server([&](const std::string& line) -> std::optional<std::string> {
      if (!line.starts_with("ms")) return std::nullopt;
      ++offers;
      return refusal;
    });
    ClusterNode node(files.dir.path(), server.name());
    EXPECT_EQ(node.open(files.write("f", "content")), "content");
    EXPECT_TRUE(comes_true([&] { return offers > 0 && server.items().empty(); })) << refusal;
  }
}

// The server reports that it is full, or does not answer. The refused records are shared as soon as
// the server accepts records again.
TEST(ClusterTier, OffersRefusedRecordsAgainLater) {
  const SharedFiles files;
  std::atomic<bool> is_away{true};
  std::atomic<int> offers{0};
  FakeMemcached server([&](const std::string& line) -> std::optional<std::string> {
    // Before an offer sends bytes, it asks whether the server has them.
    offers += line.find(" s c ") != std::string::npos ? 1 : 0;
    return is_away ? std::optional<std::string>("close") : std::nullopt;
  });
  ClusterNode node(files.dir.path(), server.name());
  for (int i = 0; i < 8; ++i)
    EXPECT_EQ(node.open(files.write(std::to_string(i), "content")), "content");
  // After all records have been postponed, one record is tried again.
  ASSERT_TRUE(comes_true([&] { return offers > 1; }));
  EXPECT_EQ(server.values(), 0U);
  is_away = false;
  EXPECT_TRUE(comes_true([&] { return server.values() == 8; })) << server.values();
}

// The thread starts over, like the next leader's thread, and finds all records in memory.
TEST(ClusterTier, SendsNoRecordTheServerHas) {
  const SharedFiles files;
  std::atomic<int> sent{0}, looks{0};
  FakeMemcached server([&](const std::string& line) -> std::optional<std::string> {
    sent += line.starts_with("ms") ? 1 : 0;
    looks += line.find(" s c ") != std::string::npos ? 1 : 0;
    return std::nullopt;
  });
  ClusterNode node(files.dir.path(), server.name());
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(node.open(files.write(std::to_string(i), "content")), "content");
  ASSERT_TRUE(comes_true([&] { return server.values() == 4; }));
  ASSERT_TRUE(node.cache->stop_cluster(k_patience));
  const int before = sent;
  looks = 0;
  EXPECT_EQ(node.open(files.write("next", "content")), "content");
  ASSERT_TRUE(comes_true([&] { return server.values() == 5 && looks >= 4; }));
  ASSERT_TRUE(node.cache->stop_cluster(k_patience));
  EXPECT_EQ(sent - before, 1);
}

// The server has been emptied since the lease was won, for example by a restart.
TEST(ClusterTier, ARecordWhoseLeaseIsGoneIsAdded) {
  const SharedFiles files;
  std::atomic<FakeMemcached*> all{nullptr};
  std::atomic<bool> is_emptied{false};
  FakeMemcached server([&](const std::string& line) -> std::optional<std::string> {
    if (line.starts_with("ms") && line.find(" C") < line.find("\r\n") && !is_emptied.exchange(true))
      all.load()->flush();
    return std::nullopt;
  });
  all = &server;
  ClusterNode node(files.dir.path(), server.name());
  EXPECT_EQ(node.open(files.write("f", "content")), "content");
  EXPECT_TRUE(comes_true([&] { return is_emptied && server.values() == 1; }));
  EXPECT_TRUE(comes_true([&] { return node.count(Counter::cluster_offered) == 1; }));
}

// Fetches from this tier never end.
struct EndlessFetches final : Tier::Judge {
  const SharedFiles files;
  tests::TestRegion region;
  RamTier ram{*region};
  base::Stats stats{};
  ClusterTier* tier = nullptr;

  explicit EndlessFetches(const std::string& server, std::uint64_t fill_per_second = 64 << 20)
      : Judge(RecordKind::file, For::many) {
    base::Config config = tests::config_for(region.options);
    config.prefixes = {files.dir.path()};
    config.cluster.texts = {server};
    config.cluster_deadline.ms = 10'000;
    config.cluster_fill = fill_per_second;
    ClusterNode::set_threads();
    std::string why;
    const auto opened = ClusterTier::open(config, ram, stats, why);
    if (opened) tests::never_freed(tier = *opened);
  }
  ~EndlessFetches() { EXPECT_TRUE(tier == nullptr || tier->client().stop(k_patience)); }
  Tier::Verdict judge(const Record&) override { return Tier::Verdict::refused; }
  void begin(int number) { EXPECT_FALSE(tier->visit(files.dir / std::to_string(number), *this)); }
};

TEST(ClusterTier, ReturnsALeaseItCannotKeep) {
  std::atomic<int> given_back{0};
  FakeMemcached server([&](const std::string& line) -> std::optional<std::string> {
    given_back += line.starts_with("md") ? 1 : 0;
    return std::nullopt;
  });
  EndlessFetches fetches(server.name());
  ASSERT_NE(fetches.tier, nullptr);
  // There is room for 64 fetches, and each is abandoned after two seconds.
  for (int i = 0; i < 2'000 && given_back == 0; ++i) fetches.begin(i);
  EXPECT_GT(given_back, 0);
}

TEST(ClusterTier, TakesNoLeaseIfItOffersNothing) {
  std::atomic<int> asked{0}, leases{0};
  FakeMemcached server([&](const std::string& line) -> std::optional<std::string> {
    ++asked;
    leases += line.find(" N") != std::string::npos ? 1 : 0;
    return std::nullopt;
  });
  EndlessFetches fetches(server.name(), 0);
  ASSERT_NE(fetches.tier, nullptr);
  fetches.begin(0);
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(leases, 0);
}

// If the origin hangs, offers of records wait for it, but the answers of servers are not delayed.
TEST(ClusterTier, HangingOriginDelaysNoAnswer) {
  const SharedFiles files;
  const std::string there = files.write("there", "of the pool");
  FakeMemcached server;
  ClusterNode other(files.dir.path(), server.name());
  EXPECT_EQ(other.open(there), "of the pool");
  ASSERT_TRUE(comes_true([&] { return server.values() == 1; }));
  g_are_looks_held = true;
  auto ending = std::make_unique<ClusterNode>(files.dir.path(), server.name());
  EXPECT_EQ(ending->open(files.write("lost", "content")), "content");
  ClusterNode node(files.dir.path(), server.name());
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(node.open(files.write(std::to_string(i), "content")), "content");
  EXPECT_EQ(node.open(there), "of the pool");
  EXPECT_EQ(node.count(Counter::hits_cluster), 1U);
  // The leases end, and the files are not stored.
  EXPECT_TRUE(comes_true([&] { return server.items().size() == 1; }));
  EXPECT_EQ(server.values(), 1U);
  // The end of the tier does not wait for the revalidation.
  ending.reset();
  g_are_looks_held = false;
  EXPECT_TRUE(comes_true([&] { return server.values() == 5; })) << server.values();
}

// Returns the same record with another inode and, if requested, as another machine would store it.
std::string forge(std::string value, std::uint64_t inode, bool is_other_machine) {
  std::vector<std::max_align_t> memory(value.size() / sizeof(std::max_align_t) + 8);
  auto* const at = reinterpret_cast<std::byte*>(
      (reinterpret_cast<std::uintptr_t>(memory.data()) + 63) / 64 * 64);
  std::memcpy(at, value.data(), value.size());
  auto& record = *reinterpret_cast<Record*>(at);
  record.stat.inode = inode;
  record.fetched_ns += 3'000'000'000;  // long after the clock tick of the file's last change
  const auto head = std::make_unique<ClusterHead>();
  write_cluster_head(content_for_cluster(record, record.path()),
                     {.job = record.job_tag, .node = record.node_tag + (is_other_machine ? 1 : 0)},
                     *head);
  value.replace(0, head->size, reinterpret_cast<const char*>(head->bytes), head->size);
  return value;
}

// Sizes and times do not distinguish the files of two directories that have changed places. On
// another machine, the mount may have invented the inode number, so the record stays on the server.
TEST(ClusterTier, RefusesARecordWithAnotherInode) {
  for (const bool is_other_machine : {false, true}) {
    const SharedFiles files;
    const std::string path = files.write("f", "content");
    FakeMemcached server;
    ClusterNode first(files.dir.path(), server.name());
    EXPECT_EQ(first.open(path), "content");
    ASSERT_TRUE(comes_true([&] { return server.values() == 1; }));
    const auto [key, item] = *server.items().begin();
    struct stat st {};
    ASSERT_EQ(stat(path.c_str(), &st), 0);
    server.put(key, forge(item.value, st.st_ino + 1, is_other_machine));
    ClusterNode second(files.dir.path(), server.name());
    EXPECT_EQ(second.open(path), "content");
    EXPECT_EQ(second.count(Counter::cluster_damaged), 0U);
    EXPECT_EQ(second.count(Counter::cluster_hits), 1U);
    EXPECT_EQ(second.count(Counter::cluster_outdated), is_other_machine ? 0U : 1U);
    EXPECT_EQ(second.count(Counter::hits_cluster), 0U);
  }
}

// Like the cluster tier on a mount whose inode numbers are not known to be true.
class RefusingTier final : public tests::EmptyTier {
 public:
  RefusingTier() : EmptyTier(1) {}
  Verdict judge_version(const Record&, const FileStat&) override { return Verdict::refused; }
};

TEST(ClusterTier, RefusesABlockOfARefusedVersion) {
  constexpr std::uint64_t k_block = 64 << 10;
  const tests::BlockFile file("/mnt/large", 2 * k_block);
  const BlockPlace place{k_block, 0};
  const tests::BlockRecord record(file, place);
  ASSERT_EQ(compare_block(*record, file.stat, place), Tier::Verdict::taken);
  RefusingTier tier;
  EXPECT_EQ(compare_block(tier, *record, file.stat, place), Tier::Verdict::refused);
}

}  // namespace
}  // namespace cube::cache
