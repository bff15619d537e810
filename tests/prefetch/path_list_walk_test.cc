// Directories that a list names.
#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>

#include "tests/prefetch/list_fixture.h"
#include "tests/support/sanitizers.h"

namespace cube::prefetch::testing {
namespace {

struct Walks : Lists {};

TEST_F(Walks, GiveEveryFileOnce) {
  Names made;
  for (const char* top : {"a", "b", "c/deep/er"}) {
    for (int i = 0; i < 100; ++i) made.push_back(std::string(top) + "/" + std::to_string(i));
  }
  made.insert(made.end(), {".hidden", "a/.hidden", "new\nline", "top"});
  for (const auto& name : made) make(name);
  mkdir(in("empty").c_str(), 0700);
  EXPECT_EQ(sorted(read(prefix + "\n")), sorted(made));
  EXPECT_EQ(refused(), 0U);
  EXPECT_EQ(sorted(read(prefix + "/\n" + in("a") + "\n")).size(), made.size() + 101);
}

TEST_F(Walks, FinishADirectoryBeforeTheNext) {
  for (int d = 0; d < 8; ++d) {
    for (int i = 0; i < 20; ++i) make("d" + std::to_string(d) + "/" + std::to_string(i));
  }
  const Names found = read(prefix);
  ASSERT_EQ(found.size(), 160U);
  for (std::size_t i = 0; i < found.size(); i += 20) {
    for (std::size_t k = 1; k < 20; ++k) {
      EXPECT_EQ(found[i + k].substr(0, found[i + k].find('/')),
                found[i].substr(0, found[i].find('/')));
    }
  }
}

TEST_F(Walks, DoNotFollowLinksIntoDirectories) {
  make("a/file");
  ASSERT_EQ(symlink("..", in("a/loop").c_str()), 0);
  ASSERT_EQ(symlink("file", in("a/link").c_str()), 0);
  ASSERT_EQ(symlink("nowhere", in("a/dangling").c_str()), 0);
  ASSERT_EQ(symlink("a", in("root").c_str()), 0);
  EXPECT_EQ(sorted(read(in("a"))), (Names{"a/file", "a/link"}));
  EXPECT_EQ(refused(Refusal::not_a_file), 1U);
  EXPECT_EQ(refused(Refusal::missing), 1U);
  EXPECT_EQ(sorted(read(in("root") + "/")), (Names{"root/file", "root/link"}))
      << "a link that is listed itself is followed";
  look_at_each = false;
  EXPECT_EQ(sorted(read(in("a") + "/")), (Names{"a/dangling", "a/file", "a/link", "a/loop"}))
      << "for others to find out";
}

TEST_F(Walks, CountSpecialFiles) {
  make("file");
  ASSERT_EQ(mkfifo(in("fifo").c_str(), 0600), 0);
  EXPECT_EQ(read(prefix), (Names{"file"}));
  EXPECT_EQ(refused(Refusal::not_a_file), 1U);
}

TEST_F(Walks, CountDirectoriesThatCannotBeRead) {
  make("file");
  make("closed/file");
  chmod(in("closed").c_str(), 0);
  if (access(in("closed").c_str(), R_OK) == 0) {
    // Root can read everything, so a directory that vanishes in the meantime serves as an
    // unreadable one.
    write(prefix);
    look_at_each = false;
    write(in("gone") + "/\n" + prefix + "/\n");
    ASSERT_TRUE(open());
    EXPECT_EQ(sorted(rest()), (Names{"closed/file", "file"}));
    EXPECT_EQ(refused(Refusal::missing), 1U);
  } else {
    EXPECT_EQ(read(prefix), (Names{"file"}));
    EXPECT_EQ(refused(Refusal::unreadable), 1U);
  }
  chmod(in("closed").c_str(), 0700);
}

TEST_F(Walks, EndBelowPathsThatAreTooLongOrTooDeep) {
  std::string name = std::string(200, 'd');
  int directory = ::open(prefix.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  for (int depth = 0; depth < 70; ++depth) {
    ASSERT_EQ(mkdirat(directory, "d", 0700), 0);
    const int next = openat(directory, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    close(directory);
    directory = next;
    const int file = openat(directory, "f", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    close(file);
  }
  close(directory);
  directory = ::open(prefix.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  for (int depth = 0; depth < 25; ++depth) {
    ASSERT_EQ(mkdirat(directory, name.c_str(), 0700), 0);
    const int next = openat(directory, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    close(directory);
    directory = next;
  }
  close(directory);
  EXPECT_EQ(read(prefix).size(), 63U) << "the root is a level too";
  EXPECT_EQ(refused(Refusal::too_long), 2U);
}

TEST_F(Walks, ContinueThoughFilesComeAndGo) {
  for (int i = 0; i < 2000; ++i) make("f" + std::to_string(i));
  write(prefix);
  ASSERT_TRUE(open());
  PathEntry entry;
  std::size_t n = 0;
  while (reader->next(entry) == PathList::Next::entry) {
    if (++n == 10) {
      for (int i = 0; i < 2000; i += 2) unlink(in("f" + std::to_string(i)).c_str());
    }
  }
  EXPECT_GE(n, 1000U);
  EXPECT_LE(n, 2000U);
}

TEST_F(Walks, ADirectoryWithManyEntriesTakesNoMemory) {
  constexpr int k_files = 20'000;
  make("one");
  const int directory = ::open(prefix.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  for (int i = 0; i < k_files; ++i) {
    ASSERT_EQ(linkat(directory, "one", directory,
                     ("a-name-of-some-length-" + std::to_string(i)).c_str(), 0),
              0);
  }
  close(directory);
  write(prefix);
  ASSERT_TRUE(open());
  struct ::rusage before {
  }, after{};
  getrusage(RUSAGE_SELF, &before);
  PathEntry entry;
  int n = 0;
  while (reader->next(entry) == PathList::Next::entry) ++n;
  getrusage(RUSAGE_SELF, &after);
  EXPECT_EQ(n, k_files + 1);
  // A sanitizer itself uses memory.
  if (!tests::k_asan && !tests::k_tsan) {
    EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 1024) << "KiB";
  }
}

}  // namespace
}  // namespace cube::prefetch::testing
