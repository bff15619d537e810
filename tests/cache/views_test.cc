// Processes that see or may read other files than the process that filled the cache.
#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/mount.h>

#include <cerrno>
#include <memory>
#include <string>
#include <vector>

#include "cache/base/unique_fd.h"
#include "tests/support/child.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_region.h"

namespace cube::cache {
namespace {

using base::Counter;
using tests::Child;
using tests::request_for;

// Needs root for private namespaces and for files of other users.
struct ViewsTest : testing::Test {
  tests::TempDir dir;
  tests::TestCache cache;

  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root";
  }
  FileCache* attach() const { return tests::attach_cache(cache.config, cache.options.job); }
};

bool enter_mount_namespace() {
  return unshare(CLONE_NEWNS) == 0 &&
         mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
}

bool drop_reading_capabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3]{};
  if (syscall(SYS_capget, &header, data) != 0) return false;
  data[0].effective &= ~((1U << CAP_DAC_OVERRIDE) | (1U << CAP_DAC_READ_SEARCH));
  return syscall(SYS_capset, &header, data) == 0;
}

std::uint64_t count(FileCache& cache, Counter counter) { return tests::counted(cache, counter); }

// Otherwise an open fd of the file would miss later writes, because its inode may belong to another
// file once it is removed.
TEST_F(ViewsTest, AFileRemovedInAnotherViewRemovesNoFileOfThisView) {
  const std::string path = dir.write("f", "ours");
  const OpenOutcome ours = cache->open(request_for(path));
  ASSERT_TRUE(ours.pin);
  const auto removal = [&](bool in_own_view) {
    return tests::run_in_child([&] {
      CHILD_CHECK(in_own_view ||
                  (enter_mount_namespace() &&
                   mount("cubeshim-test", dir.path().c_str(), "tmpfs", 0, nullptr) == 0));
      FileCache* const own = attach();
      CHILD_CHECK(own != nullptr);
      own->changes().name_changed(path, nullptr, /*is_moved=*/false);
      own->changes().doubt_identity(path, nullptr);
      return 0;
    });
  };
  EXPECT_EQ(removal(/*in_own_view=*/false), 0);
  EXPECT_TRUE(ours.pin->has_changed());
  EXPECT_FALSE(ours.pin->may_be_gone());
  const OpenOutcome again = cache->open(request_for(path));
  ASSERT_TRUE(again.pin);
  EXPECT_EQ(removal(/*in_own_view=*/true), 0);
  EXPECT_TRUE(again.pin->may_be_gone());
}

TEST_F(ViewsTest, AFileFoundWhileTheRootChangesIsShownToNobody) {
  const std::string path = dir.write("f", "perhaps another");
  const auto is_found = [&] { return cache->parts().ram.has_any(path, base::hash_path(path)); };
  const auto open_while = [&](bool is_leaving) {
    return tests::run_in_child([&] {
      FileCache* const own = attach();
      CHILD_CHECK(own != nullptr);
      if (is_leaving) Region::begin_leaving_view();
      CHILD_CHECK((own->region().view_to_show() == 0) == is_leaving);
      own->open(request_for(path));
      if (is_leaving) Region::stay_in_view();
      return 0;
    });
  };
  EXPECT_EQ(open_while(true), 0);
  EXPECT_FALSE(is_found());
  EXPECT_EQ(open_while(false), 0);
  EXPECT_TRUE(is_found());
}

TEST_F(ViewsTest, AnotherMountUnderTheSamePathIsAnotherFile) {
  const std::string path = dir.write("f", "ours");
  ASSERT_TRUE(cache->open(request_for(path)).pin);
  Child child([&] {
    CHILD_CHECK(enter_mount_namespace());
    CHILD_CHECK(mount("cubeshim-test", dir.path().c_str(), "tmpfs", 0, nullptr) == 0);
    CHILD_CHECK(tests::TempDir::write_file(path, "theirs"));
    FileCache* const own = attach();
    CHILD_CHECK(own != nullptr);
    CHILD_CHECK(!own->find(request_for(path)));
    for (int i = 0; i < 2; ++i) {
      const OpenOutcome outcome = own->open(request_for(path));
      CHILD_CHECK(outcome.pin && tests::bytes_of(*outcome.pin) == "theirs");
    }
    CHILD_CHECK(count(*own, Counter::misses) == 1);
    return 0;
  });
  EXPECT_EQ(child.wait(), 0);
  const OpenOutcome outcome = cache->open(request_for(path));
  ASSERT_TRUE(outcome.pin);
  EXPECT_EQ(tests::bytes_of(*outcome.pin), "ours");
  EXPECT_EQ(cache.count(Counter::misses), 1U);
}

TEST_F(ViewsTest, FileSeenInAnotherNamespaceIsOpenedOnceAndNotReadAgain) {
  const std::string path = dir.write("f", "shared");
  ASSERT_TRUE(cache->open(request_for(path)).pin);
  Child child([&] {
    CHILD_CHECK(enter_mount_namespace());
    FileCache* const own = attach();
    CHILD_CHECK(own != nullptr);
    for (int i = 0; i < 3; ++i) {
      const OpenOutcome outcome = own->open(request_for(path));
      CHILD_CHECK(outcome.pin && tests::bytes_of(*outcome.pin) == "shared");
      CHILD_CHECK(!outcome.pin->has_one_view());
    }
    CHILD_CHECK(count(*own, Counter::origin_opens) == 1 && count(*own, Counter::origin_reads) == 0);
    CHILD_CHECK(count(*own, Counter::hits_ram) == 3 && count(*own, Counter::misses) == 0);
    CHILD_CHECK(own->find(request_for(path)));
    return 0;
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST_F(ViewsTest, AChangeIsSeenInAllNamespaces) {
  const std::string path = dir.write("f", "old");
  ASSERT_TRUE(cache->open(request_for(path)).pin);
  Child child([&] {
    CHILD_CHECK(enter_mount_namespace());
    FileCache* const own = attach();
    CHILD_CHECK(own != nullptr && own->open(request_for(path)).pin);
    unlink(path.c_str());
    own->changes().content_changed(path, nullptr);
    return 0;
  });
  EXPECT_EQ(child.wait(), 0);
  EXPECT_EQ(cache->open(request_for(path)).error, ENOENT);
}

TEST_F(ViewsTest, ProcessWithoutReadRightDoesNotGetTheBytes) {
  const std::string path = dir.write("f", "secret");
  ASSERT_EQ(chown(path.c_str(), 1234, 1234), 0);
  ASSERT_EQ(chmod(path.c_str(), 0640), 0);
  ASSERT_TRUE(cache->open(request_for(path)).pin);
  Child without_capabilities([&] {
    CHILD_CHECK(drop_reading_capabilities());
    FileCache* const own = attach();
    CHILD_CHECK(own != nullptr && !own->find(request_for(path)));
    CHILD_CHECK(own->open(request_for(path)).error == EACCES);
    return 0;
  });
  EXPECT_EQ(without_capabilities.wait(), 0);
  Child in_the_group([&] {
    const gid_t group = 1234;
    CHILD_CHECK(setgroups(1, &group) == 0 && drop_reading_capabilities());
    FileCache* const own = attach();
    CHILD_CHECK(own != nullptr && own->open(request_for(path)).pin);
    return 0;
  });
  EXPECT_EQ(in_the_group.wait(), 0);
  // Neither child has changed the rights of a process of the other kind.
  Child still_without([&] {
    CHILD_CHECK(drop_reading_capabilities());
    FileCache* const own = attach();
    CHILD_CHECK(own != nullptr && own->open(request_for(path)).error == EACCES);
    return 0;
  });
  EXPECT_EQ(still_without.wait(), 0);
}

TEST_F(ViewsTest, FileWithEqualStatIsNotTakenForTheSame) {
  const std::string path = dir.write("f", "12345");
  const OpenOutcome first = cache->open(request_for(path));
  ASSERT_TRUE(first.pin);
  Child child([&] {
    CHILD_CHECK(enter_mount_namespace());
    FileCache* const own = attach();
    CHILD_CHECK(own != nullptr);
    // The file now differs only by its mode, as another mount of the file system may show it.
    CHILD_CHECK(chmod(path.c_str(), 0600) == 0);
    CHILD_CHECK(own->open(request_for(path)).pin);
    CHILD_CHECK(count(*own, Counter::misses) == 1);
    return 0;
  });
  EXPECT_EQ(child.wait(), 0);
}

// Files that are served in blocks.
struct LargeViewsTest : testing::Test {
  static constexpr std::size_t k_size = 3'000'001;
  tests::TempDir dir;
  tests::TestCache cache{64 * tests::k_mib, [](base::Config& config) {
                           config.max_file = 100'000;
                           config.block = 64 << 10;
                         }};

  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root";
  }
  // Reads the whole file like a program. Returns an empty string if the file is left to the kernel.
  static std::string read(FileCache& cache, const std::string& path, int flags = O_RDONLY) {
    const base::UniqueFd fd(open(path.c_str(), flags | O_CLOEXEC));
    LargeFile* const file = cache.large().begin(path, fd.get());
    if (file == nullptr) return {};
    std::string bytes(k_size, '\0');
    const long got = cache.large().read(*file, FdEpoch(fd.get()),
                                        reinterpret_cast<std::byte*>(bytes.data()), k_size, 0);
    bytes.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    file->end();
    return bytes;
  }
};

TEST_F(LargeViewsTest, AnotherMountUnderTheSamePathHasSeparateBlocks) {
  const std::string ours(k_size, 'a'), theirs(k_size, 'b');
  const std::string path = dir.write("f", ours);
  ASSERT_EQ(read(*cache.cache, path), ours);
  Child child([&] {
    CHILD_CHECK(enter_mount_namespace());
    CHILD_CHECK(mount("cubeshim-test", dir.path().c_str(), "tmpfs", 0, nullptr) == 0);
    CHILD_CHECK(tests::TempDir::write_file(path, theirs));
    FileCache* const own = tests::attach_cache(cache.config, cache.options.job);
    CHILD_CHECK(own != nullptr);
    for (int i = 0; i < 2; ++i) CHILD_CHECK(read(*own, path) == theirs);
    CHILD_CHECK(count(*own, Counter::block_origin) == k_size);
    return 0;
  });
  EXPECT_EQ(child.wait(), 0);
  EXPECT_EQ(read(*cache.cache, path), ours);
  EXPECT_EQ(cache.count(Counter::block_origin), k_size);
}

TEST_F(LargeViewsTest, FileSeenInAnotherNamespaceIsNotReadAgain) {
  const std::string bytes(k_size, 'a');
  const std::string path = dir.write("f", bytes);
  ASSERT_EQ(read(*cache.cache, path), bytes);
  Child child([&] {
    CHILD_CHECK(enter_mount_namespace());
    FileCache* const own = tests::attach_cache(cache.config, cache.options.job);
    CHILD_CHECK(own != nullptr && read(*own, path) == bytes);
    CHILD_CHECK(count(*own, Counter::block_origin) == 0);
    return 0;
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST_F(LargeViewsTest, FdThatCannotBeReadGetsNothing) {
  const std::string bytes(k_size, 'a');
  const std::string path = dir.write("f", bytes);
  ASSERT_EQ(read(*cache.cache, path), bytes);
  EXPECT_EQ(read(*cache.cache, path, O_PATH), "");
  EXPECT_EQ(read(*cache.cache, path, O_WRONLY), "");
  // A program may open with O_ACCMODE only for ioctls.
  EXPECT_EQ(read(*cache.cache, path, O_ACCMODE), "");
}

// Simulates a job whose steps run in containers. The kernel reuses the numbers of each ended
// namespace for the next namespace.
TEST_F(ViewsTest, NamespaceWithReusedNumbersSeesOnlyItsFiles) {
  const std::string path = dir.write("f", "ours");
  for (const char* const bytes : {"first", "second", "third"}) {
    Child child([&] {
      CHILD_CHECK(enter_mount_namespace());
      CHILD_CHECK(mount("cubeshim-test", dir.path().c_str(), "tmpfs", 0, nullptr) == 0);
      CHILD_CHECK(tests::TempDir::write_file(path, bytes));
      FileCache* const own = attach();
      CHILD_CHECK(own != nullptr);
      const OpenOutcome outcome = own->open(request_for(path));
      CHILD_CHECK(outcome.pin && tests::bytes_of(*outcome.pin) == bytes);
      return 0;
    });
    EXPECT_EQ(child.wait(), 0) << bytes;
  }
}

// A record is valid only for the view that has found it.
struct ViewNumbersTest : testing::Test {
  tests::RegionName name;

  ViewNumbersTest() { name.options.keep = true; }
  // Runs in its own process, which leaves a record, and lives until `over` if `over` is given.
  // Returns the bit of the process's view, and whether it found the record of an earlier process.
  struct Seen {
    std::uint32_t bit = 0;
    bool has_found = false;
  };
  Seen see(const base::View& view) {
    Seen seen;
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    Child child([&] {
      name.options.view = view;
      name.options.job = base::current_process();
      std::string why;
      Region* const region = tests::attach(name.options, &why);
      CHILD_CHECK(region != nullptr);
      RamTier tier(*region);
      Seen own{region->own_view(), static_cast<bool>(tests::find(tier, "/f"))};
      CHILD_CHECK(own.has_found || tests::put(tier, "/f", "bytes"));
      CHILD_CHECK(write(ends[1], &own, sizeof own) == sizeof own);
      region->detach();
      return 0;
    });
    EXPECT_EQ(child.wait(), 0);
    EXPECT_EQ(read(ends[0], &seen, sizeof seen), static_cast<ssize_t>(sizeof seen));
    close(ends[0]), close(ends[1]);
    return seen;
  }
};

TEST_F(ViewNumbersTest, IdentifyAViewIfTheyAreNeverReused) {
  const base::View view{.number = 7, .rights = 1, .is_lasting = true};
  const Seen first = see(view), again = see(view);
  EXPECT_TRUE(!first.has_found && again.has_found);
  EXPECT_EQ(first.bit, again.bit);
}

TEST_F(ViewNumbersTest, IdentifyAViewOnlyWhileItsProcessLivesIfTheyAreReused) {
  const base::View view{.number = 7, .rights = 1, .is_lasting = false};
  tests::Gate attached, over;
  Child user([&] {
    name.options.view = view;
    name.options.job = base::current_process();
    Region* const region = tests::attach(name.options);
    CHILD_CHECK(region != nullptr);
    attached.give();
    CHILD_CHECK(over.take());
    region->leave_view();
    attached.give();
    CHILD_CHECK(over.take());
    region->detach();
    return 0;
  });
  ASSERT_TRUE(attached.take());
  const Seen first = see(view), again = see(view);
  EXPECT_TRUE(!first.has_found && again.has_found);
  over.give();
  ASSERT_TRUE(attached.take());
  EXPECT_FALSE(see(view).has_found) << "the one that lives sees something else by now";
  over.give();
  EXPECT_EQ(user.wait(), 0);
  const Seen after = see(view);
  EXPECT_FALSE(after.has_found);
  EXPECT_NE(after.bit, first.bit);
}

TEST_F(ViewNumbersTest, BitsOfEndedViewsAreReused) {
  std::uint32_t bits = 0;
  for (std::uint64_t number = 2; number < 2 + k_views; ++number) {
    const Seen seen = see({.number = number, .rights = 1, .is_lasting = true});
    EXPECT_FALSE(seen.has_found) << number;
    bits |= seen.bit;
  }
  EXPECT_EQ(bits, ~0U);
  // All these views have records, which another view that gets their bit must not find.
  const Seen next = see({.number = 1000, .rights = 1, .is_lasting = true});
  EXPECT_NE(next.bit, 0U);
  EXPECT_FALSE(next.has_found);
  const Seen again = see({.number = 1000, .rights = 1, .is_lasting = true});
  EXPECT_TRUE(again.has_found) << "the region is the same";
}

TEST_F(ViewNumbersTest, AreRefusedIfAllBitsAreInUse) {
  tests::Gate attached, over;
  std::vector<std::unique_ptr<Child>> users;
  for (std::uint64_t number = 2; number < 2 + k_views; ++number) {
    users.push_back(std::make_unique<Child>([&, number] {
      name.options.view = {.number = number, .rights = 1, .is_lasting = true};
      name.options.job = base::current_process();
      Region* const region = tests::attach(name.options);
      CHILD_CHECK(region != nullptr);
      attached.give();
      CHILD_CHECK(over.take());
      region->detach();
      return 0;
    }));
    ASSERT_TRUE(attached.take());
  }
  name.options.view = {.number = 1000, .rights = 1, .is_lasting = true};
  std::string why;
  EXPECT_EQ(tests::attach(name.options, &why), nullptr);
  EXPECT_NE(why.find("takes no more: set another CUBESHIM_NAME"), std::string::npos) << why;
  for (std::size_t i = 0; i < users.size(); ++i) over.give();
  for (const auto& user : users) EXPECT_EQ(user->wait(), 0);
}

}  // namespace
}  // namespace cube::cache
