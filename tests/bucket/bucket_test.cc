// Listings of buckets, and files handed over by their gateway.
#include "cache/bucket/bucket.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/xattr.h>

#include <atomic>
#include <climits>
#include <csignal>
#include <cstring>
#include <memory>
#include <thread>

#include "cache/bucket/copy_socket.h"
#include "cache/bucket/copy_stat.h"
#include "cache/bucket/gateway_start.h"
#include "prefetch/object/copy_desk.h"
#include "prefetch/object/copy_file.h"
#include "prefetch/object/listed_objects.h"
#include "tests/support/child.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_region.h"

namespace cube::cache {
namespace {

constexpr std::string_view k_prefix = "/data/train", k_url = "s3://bucket/train";

BucketMount mount() { return {std::string(k_prefix), std::string(k_url)}; }

Pin listing_of(tests::TestCache& cache, const BucketMount& mount, std::string_view below) {
  const std::string path = std::string(k_prefix) + (below.empty() ? "" : "/") + std::string(below);
  return cache->parts().ram.find_of_origin(mount.origin_id(), RecordKind::directory, path,
                                           base::hash_path(path));
}

TEST(BucketMount, StatsAgreeAcrossProcessesAndDifferAcrossVersions) {
  const BucketMount own = mount();
  const ObjectInfo object{5, 1'700'000'000, mark_of_etag("\"abc\"")};
  const FileStat stat = own.stat_of_object("a/x", object);
  EXPECT_EQ(stat.mode, S_IFREG | 0444U);
  EXPECT_EQ(stat.size, 5U);
  EXPECT_EQ(stat.modified.seconds, 1'700'000'000);
  EXPECT_EQ(stat.modified.nanoseconds, 0U);
  EXPECT_LT(stat.changed.nanoseconds, 1'000'000'000U);
  EXPECT_TRUE(stat.is_unchanged_since(mount().stat_of_object("a/x", object)));
  ObjectInfo other = object;
  other.etag_mark = mark_of_etag("abd");
  EXPECT_FALSE(stat.is_unchanged_since(own.stat_of_object("a/x", other)));
  EXPECT_EQ(mark_of_etag("abc"), object.etag_mark) << "quotes do not matter";
  EXPECT_NE(own.stat_of_object("a/y", object).inode, stat.inode);
  EXPECT_NE(BucketMount("/data/train", "s3://bucket/test").origin_id(), own.origin_id());
  EXPECT_NE(BucketMount("/data/test", "s3://bucket/train").origin_id(), own.origin_id());
}

TEST(ListedObjects, SkipsInvalidNamesAndHidesObjectsBehindDirectories) {
  tests::TestCache cache;
  const BucketMount own = mount();
  prefetch::ListedObjects listed;
  listed.add_object("", {});  // the marker of the directory
  listed.add_object("b", {7, 3, 1});
  listed.add_directory("a");
  listed.add_object("a", {1, 1, 1});
  listed.add_directory("c");
  listed.add_object("c", {1, 1, 1});
  for (const std::string_view name : {".", "..", "x/y"}) listed.add_object(name, {});
  listed.add_object(std::string_view("z\0z", 3), {});
  listed.add_object(std::string(256, 'n'), {});
  listed.add_directory("");  // of keys with "//"
  listed.add_object(std::string(255, 'n'), {9, 9, 9});
  ASSERT_TRUE(listed.publish(cache->metadata(), cache->parts().ram, own, "a/b", 17));
  EXPECT_EQ(listed.left_out(), 6U);
  EXPECT_EQ(listed.hidden(), 2U);
  EXPECT_TRUE(prefetch::ListedObjects::is_there(cache->parts().ram, own, "a/b", 17));
  EXPECT_FALSE(prefetch::ListedObjects::is_there(cache->parts().ram, own, "a/b", 18));
  const Pin pin = listing_of(cache, own, "a/b");
  ASSERT_TRUE(pin);
  const auto names = ObjectNames::of(*pin);
  ASSERT_TRUE(names);
  ASSERT_EQ(names->count(), 4U);
  EXPECT_TRUE(names->find("a")->is_directory);
  EXPECT_TRUE(names->find("c")->is_directory);
  EXPECT_FALSE(names->find("b")->is_directory);
  EXPECT_EQ(names->find("b")->object, (ObjectInfo{7, 3, 1}));
  EXPECT_EQ(names->find(std::string(255, 'n'))->object, (ObjectInfo{9, 9, 9}));
  for (const std::string_view name : {"", "A", "aa", "d", "x/y"}) EXPECT_FALSE(names->find(name));
}

TEST(ListedObjects, ReplacesThePreviousListing) {
  tests::TestCache cache;
  const BucketMount own = mount();
  for (const std::uint64_t size : {1, 2, 3}) {
    prefetch::ListedObjects listed;
    listed.add_object("x", {size, 0, 0});
    ASSERT_TRUE(listed.publish(cache->metadata(), cache->parts().ram, own, "", size));
    EXPECT_EQ(ObjectNames::of(*listing_of(cache, own, ""))->find("x")->object.size, size);
  }
}

TEST(ListedObjects, HoldsMoreNamesThanASegmentOfMetadata) {
  tests::TestCache cache(64 * tests::k_mib);
  const BucketMount own = mount();
  prefetch::ListedObjects listed;
  constexpr std::uint64_t k_names = 100'000;
  for (std::uint64_t i = 0; i < k_names; ++i)
    listed.add_object("object-" + std::to_string(i), {i, 0, 0});
  ASSERT_TRUE(listed.publish(cache->metadata(), cache->parts().ram, own, "", 1));
  const Pin pin = listing_of(cache, own, "");
  ASSERT_TRUE(pin);
  const auto names = ObjectNames::of(*pin);
  for (std::uint64_t i = 0; i < k_names; i += 997)
    EXPECT_EQ(names->find("object-" + std::to_string(i))->object.size, i);
}

TEST(ObjectNames, ReadsStayWithinADamagedRecord) {
  std::vector<std::uint64_t> room(64);
  auto& record = *reinterpret_cast<Record*>(room.data());
  std::byte* const data = reinterpret_cast<std::byte*>(room.data()) + sizeof(Record);
  record.kind = RecordKind::directory;
  record.data_offset = sizeof(Record);
  const ObjectNames::Entry entry{.name = "name", .is_directory = false, .object = {1, 2, 3}};
  record.data_size = ObjectNames::bytes_for(1, 4);
  ObjectNames::write(data, {&entry, 1}, 4);
  ASSERT_TRUE(ObjectNames::of(record));
  EXPECT_EQ(ObjectNames::of(record)->find("name")->object, entry.object);
  for (std::size_t at = 0; at < record.data_size; ++at) {
    for (const int bit : {1, 0x80}) {
      data[at] ^= static_cast<std::byte>(bit);
      if (const auto names = ObjectNames::of(record); names) {
        EXPECT_EQ(names->count(), 1U);
        const std::string_view name = names->at(0).name;
        EXPECT_TRUE(name.empty() || (name.data() >= reinterpret_cast<char*>(data) &&
                                     name.data() + name.size() <=
                                         reinterpret_cast<char*>(data) + record.data_size));
        names->find("name");
      }
      data[at] ^= static_cast<std::byte>(bit);
    }
  }
  record.data_size = 8;
  EXPECT_FALSE(ObjectNames::of(record));
}

TEST(StoreMark, DependsOnlyOnStoreAndCredentials) {
  const auto mark_of = [](std::vector<const char*> environment) {
    environment.push_back(nullptr);
    return gateway_start::store_mark(environment.data());
  };
  const std::uint64_t mark =
      mark_of({"AWS_ACCESS_KEY_ID=A", "AWS_REGION=eu", "CUBESHIM_S3_TIMEOUT=5", "LANG=C"});
  EXPECT_EQ(mark_of({"CUBESHIM_S3_TIMEOUT=60", "AWS_REGION=eu", "AWS_ACCESS_KEY_ID=A"}), mark);
  EXPECT_NE(mark_of({"AWS_ACCESS_KEY_ID=B", "AWS_REGION=eu"}), mark);
  EXPECT_NE(mark_of({"AWS_ACCESS_KEY_ID=A", "AWS_REGION=eu", "CUBESHIM_S3_ADDRESSING=path"}), mark);
}

// Returns the error of collect_copy, or 0, in an unprivileged process that can open two more fds:
// one for the socket, and one for the gateway's end of the socket. `more`: by how much the process
// may raise its limit.
int collect_without_a_free_fd(rlim_t more) {
  const std::string path = tests::region_path("/dev/shm", tests::unique_name()) + ".full.sock";
  const int error = tests::run_in_child([&]() -> int {
    CHILD_CHECK(geteuid() != 0 || setuid(65534) == 0);
    // This call lets the process use its own directory in /proc.
    CHILD_CHECK(prctl(PR_SET_DUMPABLE, 1) == 0);
    const base::UniqueFd root(open("/", O_RDONLY | O_CLOEXEC));
    const auto listener = listen_for_copies(path);
    CHILD_CHECK(listener);
    const int free = dup(listener->get());
    base::sys::raw(SYS_close_range, free, ~0U, 0);
    const rlim_t soft = static_cast<rlim_t>(free) + 2;
    const rlimit limit{soft, soft + more};
    CHILD_CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    // The gateway's end stays open until the test ends.
    base::Result<base::UniqueFd> asker = base::fail(EAGAIN);
    std::thread gateway([&] {
      pollfd waiting{listener->get(), POLLIN, 0};
      poll(&waiting, 1, 60'000);
      MailTicket ticket;
      asker = accept_copy(listener->get(), ticket);
      if (asker) send_copy(asker->get(), root.get());
    });
    const auto fd = collect_copy(path, {3, 77}, 0);
    gateway.join();
    return fd ? 0 : fd.error().value;
  });
  unlink(path.c_str());
  return error;
}

TEST(CopySocket, ProgramWithoutAFreeFdGetsNoFile) {
  EXPECT_EQ(collect_without_a_free_fd(0), EMFILE);
}

TEST(CopySocket, OneFreeFdIsEnough) { EXPECT_EQ(collect_without_a_free_fd(10), 0); }

TEST(CopyDesk, DropsCopiesOnceNoRequestWantsThem) {
  const tests::TestRegion region;
  const std::string path = region.path() + ".desk.sock";
  Mailbox mailbox(*region);
  ASSERT_EQ(mailbox.become_gateway(), 0);
  prefetch::CopyDesk desk(mailbox, std::move(*listen_for_copies(path)));
  auto file = std::make_shared<const base::UniqueFd>();
  const std::weak_ptr<const base::UniqueFd> kept = file;
  {
    Mailbox::Post post;
    std::thread asker([&] {
      const MailQuery query{.kind = MailKind::copy, .prefix = k_prefix, .url = k_url, .below = "x"};
      EXPECT_EQ(mailbox.ask(
                    query, [] { return ENOEXEC; }, {}, post),
                0);
    });
    std::optional<Mailbox::Request> request;
    while (!request) request = mailbox.take();
    desk.add(request->ticket, std::move(file));
    EXPECT_TRUE(mailbox.finish(request->ticket, 0));
    asker.join();
    desk.drop_unwanted();
    EXPECT_FALSE(kept.expired()) << "the asker has yet to collect it";
  }
  desk.drop_unwanted();
  EXPECT_TRUE(kept.expired());
  unlink(path.c_str());
}

TEST(CopyStat, MatchesTheObjectByFdAndByEachLink) {
  const FileStat stat = mount().stat_of_object("x", {5, 1'700'000'000, 1});
  const auto file = copy_of_bytes(reinterpret_cast<const std::byte*>("hello"), stat, O_CLOEXEC);
  ASSERT_TRUE(file);
  char byte;
  ASSERT_EQ(read(file->get(), &byte, 1), 1);
  FileStat seen;
  ASSERT_TRUE(stat_of_copy(file->get(), seen));
  EXPECT_TRUE(seen.is_unchanged_since(stat));
  EXPECT_EQ(seen.accessed.seconds, 1'700'000'000);
  EXPECT_EQ(seen.blocks, 1U);
  for (const std::string folder : {"/proc/self/fd/", "/dev/fd/"}) {
    FileStat by_link;
    ASSERT_TRUE(stat_of_copy((folder + std::to_string(file->get())).c_str(), by_link)) << folder;
    EXPECT_TRUE(by_link.is_unchanged_since(stat)) << folder;
  }
}

TEST(CopyStat, IgnoresAnOrdinaryFileNamedLikeACopy) {
  const tests::TempDir dir;
  const std::string path = dir.write("cubeshim:1:2:3:4:", "x");
  const base::UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  FileStat seen;
  EXPECT_FALSE(stat_of_copy(fd.get(), seen));
  unlink(path.c_str());
  EXPECT_FALSE(stat_of_copy(fd.get(), seen)) << "it has no name in a directory, either";
}

TEST(CopyStat, IsFoundForACopyOnDisk) {
  const tests::TempDir dir;
  if (setxattr(dir.path().c_str(), "user.cubeshim.test", "x", 1, 0) != 0)
    GTEST_SKIP() << "the file system has no attributes";
  constexpr std::uint64_t k_size = (256 << 20) + 1;  // smaller copies are kept in memory
  const FileStat stat = mount().stat_of_object("x", {k_size, 1'700'000'000, 1});
  prefetch::CopyFile copy(
      dir.path(), [&](const s3::Outcome&) { return stat; }, [] {}, nullptr);
  s3::Outcome head;
  head.size = k_size;
  ASSERT_EQ(copy.begin(head), 0);
  const base::UniqueFd file = copy.finish();
  const FileStat own = *stat_fd(file.get(), AT_STATX_DONT_SYNC);
  EXPECT_EQ(own.device(), stat_path(AT_FDCWD, dir.path().c_str(), AT_STATX_DONT_SYNC)->device());
  FileStat seen;
  ASSERT_TRUE(stat_of_copy(file.get(), seen));
  EXPECT_TRUE(seen.same_file(stat));
}

// All processes that ask for an object at the same time share the file of the copy.
TEST(CopyFile, IsSealedAgainstWritesByProcessesThatShareIt) {
  const FileStat stat = mount().stat_of_object("x", {5, 1'700'000'000, 1});
  prefetch::CopyFile copy(
      {}, [&](const s3::Outcome&) { return stat; }, [] {}, nullptr);
  s3::Outcome head;
  head.size = stat.size;
  ASSERT_EQ(copy.begin(head), 0);
  std::memcpy(copy.room(0, 5), "hello", 5);
  const base::UniqueFd file = copy.finish();
  EXPECT_EQ(fcntl(file.get(), F_GETFL) & O_ACCMODE, O_RDONLY);
  struct ::stat st {};
  ASSERT_EQ(fstat(file.get(), &st), 0);
  EXPECT_EQ(st.st_mode, S_IFREG | 0444U);
  EXPECT_EQ(st.st_mtim.tv_sec, 1'700'000'000);
  const std::string name = "/proc/self/fd/" + std::to_string(file.get());
  EXPECT_EQ(truncate(name.c_str(), 0), -1);
  // Only root may open it for writing.
  const base::UniqueFd writable(open(name.c_str(), O_WRONLY | O_CLOEXEC));
  EXPECT_EQ(write(writable.get(), "X", 1), -1);
  char bytes[8];
  EXPECT_EQ(read(file.get(), bytes, sizeof bytes), 5);
  EXPECT_EQ(std::string_view(bytes, 5), "hello");
}

// Returns the error of collect_copy, or 0, in a process whose handler runs several times while the
// process waits for the gateway. `flags`: those of the handler.
int collect_with_handler(int flags) {
  const std::string path = tests::region_path("/dev/shm", tests::unique_name()) + ".signal.sock";
  const int error = tests::run_in_child([&]() -> int {
    static std::atomic<int> runs{0};
    struct ::sigaction action {};
    action.sa_handler = [](int) { ++runs; };
    action.sa_flags = flags;
    const auto listener = listen_for_copies(path);
    CHILD_CHECK(listener && sigaction(SIGUSR1, &action, nullptr) == 0);
    const pthread_t asking = pthread_self();
    const base::UniqueFd root(open("/", O_RDONLY | O_CLOEXEC));
    std::atomic<bool> is_done{false};
    std::thread gateway([&] {
      pollfd waiting{listener->get(), POLLIN, 0};
      poll(&waiting, 1, 60'000);
      MailTicket ticket;
      const auto asker = accept_copy(listener->get(), ticket);
      const int most = flags == 0 ? INT_MAX : 20;
      for (int sent = 0; sent < most && !is_done; ++sent) {
        pthread_kill(asking, SIGUSR1);
        while (runs <= sent) std::this_thread::yield();
      }
      if (asker) send_copy(asker->get(), root.get());
    });
    const auto fd = collect_copy(path, {3, 77}, 0);
    is_done = true;
    gateway.join();
    return fd ? 0 : fd.error().value;
  });
  unlink(path.c_str());
  return error;
}

TEST(CopySocket, HandlerInterruptsTheWaitOnlyWithoutSaRestart) {
  EXPECT_EQ(collect_with_handler(SA_RESTART), 0);
  EXPECT_EQ(collect_with_handler(0), EINTR);
}

TEST(CopySocket, HandsOverASealedFileWithASeparateOffset) {
  const std::string path = tests::region_path("/dev/shm", tests::unique_name()) + ".gateway.sock";
  const auto listener = listen_for_copies(path);
  ASSERT_TRUE(listener);
  struct ::stat st {};
  ASSERT_EQ(::stat(path.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0700U & ~0077U) << "for this user only";
  const FileStat stat = mount().stat_of_object("x", {5, 1'700'000'000, 1});
  std::thread gateway([&] {
    for (int i = 0; i < 2; ++i) {
      pollfd waiting{listener->get(), POLLIN, 0};
      ASSERT_EQ(poll(&waiting, 1, 60'000), 1);
      MailTicket ticket;
      const auto asker = accept_copy(listener->get(), ticket);
      ASSERT_TRUE(asker);
      EXPECT_EQ(ticket.row, 3U);
      EXPECT_EQ(ticket.word, 77U);
      const auto file = copy_of_bytes(reinterpret_cast<const std::byte*>("hello"), stat, O_CLOEXEC);
      ASSERT_TRUE(file);
      lseek(file->get(), 5, SEEK_SET);
      EXPECT_TRUE(send_copy(asker->get(), i == 0 ? file->get() : -1));
    }
  });
  const auto fd = collect_copy(path, {3, 77}, O_CLOEXEC);
  ASSERT_TRUE(fd);
  char bytes[8];
  EXPECT_EQ(read(fd->get(), bytes, sizeof bytes), 5);
  EXPECT_EQ(std::string_view(bytes, 5), "hello");
  EXPECT_EQ(write(fd->get(), "x", 1), -1);
  EXPECT_EQ(fcntl(fd->get(), F_GETFD), FD_CLOEXEC);
  EXPECT_EQ(fcntl(fd->get(), F_GETFL) & O_ACCMODE, O_RDONLY);
  ASSERT_EQ(fstat(fd->get(), &st), 0);
  EXPECT_EQ(st.st_mode, S_IFREG | 0444U);
  EXPECT_EQ(st.st_mtim.tv_sec, 1'700'000'000);
  const auto none = collect_copy(path, {3, 77}, O_CLOEXEC);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().value, ESTALE);
  gateway.join();
  unlink(path.c_str());
  EXPECT_EQ(collect_copy(path, {3, 77}, O_CLOEXEC).error().value, ENOENT);
}

}  // namespace
}  // namespace cube::cache
