// Lines of a list: which lines are paths and which are not. No line is left out silently.
#include <fcntl.h>
#include <sys/resource.h>

#include <random>

#include "cache/base/path.h"
#include "tests/prefetch/list_fixture.h"
#include "tests/support/child.h"
#include "tests/support/sanitizers.h"

namespace cube::prefetch::testing {
namespace {

TEST_F(Lists, GiveTheFilesInTheirOrder) {
  make("b");
  make("a");
  make("sub/c");
  EXPECT_EQ(read(in("b") + "\n" + in("a") + "\n" + in("sub/c") + "\n" + in("b")),
            (Names{"b", "a", "sub/c", "b"}));
  EXPECT_EQ(refused(), 0U);
  EXPECT_EQ(last, PathList::Next::end);
  EXPECT_TRUE(rest().empty()) << "the end stays the end";
}

TEST_F(Lists, TakeEveryPathWhereThePrefixIsTheRoot) {
  make("a");
  write(in("a") + "\n");
  ASSERT_TRUE(open({"/"}));
  EXPECT_EQ(rest(), (Names{"a"}));
  EXPECT_EQ(refused(), 0U);
}

TEST_F(Lists, PassOverCommentsAndEmptyLines) {
  make("a");
  make("b");
  EXPECT_EQ(read("# text\n\n" + in("a") + "\n\n#\n\r\n" + in("b") + "\n\n"), (Names{"a", "b"}));
  EXPECT_EQ(refused(), 0U);
}

TEST_F(Lists, TakeCarriageReturnsAndAByteOrderMark) {
  make("a");
  make("b");
  EXPECT_EQ(read("\xEF\xBB\xBF" + in("a") + "\r\n" + in("b") + "\r\n"), (Names{"a", "b"}));
  EXPECT_EQ(refused(), 0U);
}

TEST_F(Lists, TakeNulSeparatedNamesVerbatim) {
  Names names = {"new\nline", "cr\r", "#no comment", "-no exclusion", " blank ", "\xff\xfe"};
  std::string text;
  for (const auto& name : names) {
    make(name);
    text += name + std::string(1, '\0');
  }
  EXPECT_EQ(read(text), names);
  EXPECT_EQ(refused(), 0U);
  text.pop_back();
  EXPECT_EQ(read(text), names) << "without the last NUL";
  EXPECT_EQ(read(text + std::string(2, '\0')), names);
  EXPECT_EQ(refused(Refusal::bad_line), 1U) << "an empty name";
}

TEST_F(Lists, NormalisePaths) {
  make("a/b");
  EXPECT_EQ(read(prefix + "//a/./b\n" + prefix + "/a/x/../b\n" + prefix + "/../data/a/b\n"),
            (Names{"a/b", "a/b", "a/b"}));
  EXPECT_EQ(read("/../../.." + in("a/b")), (Names{"a/b"}));
}

TEST_F(Lists, CountRefusedPathsByReason) {
  make("a");
  make("unreadable/x");
  ASSERT_EQ(mkfifo(in("fifo").c_str(), 0600), 0);
  const std::string text = "/etc/passwd\n" + prefix + "x/a\n" + in("none") + "\n" + in("a/b") +
                           "\n" + in("fifo") + "\n" + in(std::string(5000, 'n')) + "\n-\n- \n" +
                           in("a") + "\n" + in(std::string(300, 'n')) + "\n";
  EXPECT_EQ(read(text), (Names{"a"}));
  EXPECT_EQ(refused(Refusal::outside), 2U);
  EXPECT_EQ(refused(Refusal::missing), 2U);
  EXPECT_EQ(refused(Refusal::not_a_file), 1U);
  EXPECT_EQ(refused(Refusal::too_long), 2U);
  EXPECT_EQ(refused(Refusal::bad_line), 2U);
  EXPECT_EQ(refused(), 9U);
  EXPECT_EQ(reader->refusals().text(Refusal::outside),
            "2 entries are outside CUBESHIM_PREFIXES, the first is /etc/passwd (line 1)");
  EXPECT_EQ(reader->refusals().text(Refusal::not_a_file),
            "1 entry is not a regular file, the first is " + in("fifo") + " (line 5)");
  EXPECT_EQ(reader->refusals().text(Refusal::excluded), "");
}

TEST_F(Lists, GiveCoveredPathsUncheckedIfTheyDoNotLook) {
  look_at_each = false;
  make("d/x");
  write(in("none") + "\n" + in("d") + "\n" + in("d") + "/\n/etc/passwd\n");
  ASSERT_TRUE(open());
  PathEntry entry;
  ASSERT_EQ(reader->next(entry), PathList::Next::entry);
  EXPECT_EQ(entry.path, in("none"));
  EXPECT_EQ(entry.kind, PathEntry::unknown);
  reader->refuse(Refusal::missing, entry.path, ENOENT);
  ASSERT_EQ(reader->next(entry), PathList::Next::entry);
  EXPECT_EQ(entry.path, in("d"));
  reader->walk(entry.path);
  ASSERT_EQ(reader->next(entry), PathList::Next::entry);
  EXPECT_EQ(entry.path, in("d/x")) << "of the directory that was found";
  EXPECT_EQ(entry.kind, PathEntry::file);
  ASSERT_EQ(reader->next(entry), PathList::Next::entry);
  EXPECT_EQ(entry.path, in("d/x")) << "of the line that ends in a slash";
  EXPECT_EQ(reader->next(entry), PathList::Next::end);
  EXPECT_EQ(refused(Refusal::missing), 1U);
  EXPECT_EQ(refused(Refusal::outside), 1U);
}

TEST_F(Lists, LookForRelativePathsBesideTheListAndThenInThePrefixes) {
  make("lists/here");
  make("there");
  make("lists/both");
  make("both");
  const std::string other = dir / "other";
  mkdir(other.c_str(), 0700);
  tests::TempDir::write_file(other + "/elsewhere", "x");
  list = in("lists/list");
  for (const bool looks : {true, false}) {
    look_at_each = looks;
    write("here\nboth\n../there\n./lists/../both\n");
    ASSERT_TRUE(open());
    EXPECT_EQ(rest(), (Names{"lists/here", "lists/both", "there", "lists/both"}));
    write("there\nelsewhere\nboth\nnone\n../../list\n");
    ASSERT_TRUE(open({prefix, other}));
    const Names found = rest();
    if (looks) {
      EXPECT_EQ(found, (Names{"there", other + "/elsewhere", "lists/both"}));
      EXPECT_EQ(refused(Refusal::missing), 1U);
    } else {
      EXPECT_EQ(found, (Names{"there", "elsewhere", "both", "none"}))
          << "one stat for all: the place of the first";
    }
    EXPECT_EQ(refused(Refusal::outside), 1U);
  }
}

TEST_F(Lists, ExcludePathsAfterAMinus) {
  for (const char* name : {"a/1", "a/2", "b/1", "ab/1"}) make(name);
  EXPECT_EQ(sorted(read(in("a/1") + "\n- " + in("a") + "\n" + prefix + "\n" + in("a/2") + "\n" +
                        in("ab/1") + "\n")),
            (Names{"a/1", "ab/1", "ab/1", "b/1"}))
      << "from that line on, the directory and all below, and no neighbour";
  EXPECT_EQ(refused(Refusal::excluded), 2U)
      << "the directory at the walk, and the file that was listed";
  EXPECT_EQ(sorted(read("-" + in("a/1") + "\n-\tb//./\n" + prefix)), (Names{"a/2", "ab/1"}));
  EXPECT_EQ(read("- /etc\n"), (Names{}));
  EXPECT_EQ(refused(Refusal::outside), 1U);
  make("-x");
  EXPECT_EQ(read("./-x\n"), (Names{"-x"}));
}

TEST_F(Lists, OnlyRegularFilesAreLists) {
  ASSERT_EQ(mkfifo((dir / "fifo").c_str(), 0600), 0);
  std::string why;
  for (const std::string& path : {dir / "fifo", dir.path(), std::string("/dev/zero")}) {
    EXPECT_EQ(PathList::open({path, {prefix}, true}, why), nullptr);
    EXPECT_EQ(why, path + ": it is not a regular file");
  }
  EXPECT_EQ(PathList::open({dir / "none", {prefix}, true}, why), nullptr);
  EXPECT_EQ(why, dir / "none: No such file or directory");
  EXPECT_EQ(PathList::open({"", {prefix}, true}, why), nullptr);
}

TEST_F(Lists, EmptyListIsAccepted) { EXPECT_EQ(read(""), Names{}); }

TEST_F(Lists, LinesAcrossBlocksAreWhole) {
  // The names have many lengths, so that block boundaries fall into names at all positions.
  std::string text;
  Names names;
  look_at_each = false;
  for (std::size_t i = 0; i < 3000; ++i) {
    names.push_back(std::to_string(i) + std::string(i * 7 % 250, 'y') + "/" +
                    std::string(i * 13 % 200 + 1, 'z'));
    text += in(names.back()) + (i % 3 == 0 ? "\r\n" : "\n");
    if (i % 100 == 0) text += std::string(5000 + i * 40, 'q') + "\n";
  }
  EXPECT_TRUE(read(text) == names);
  EXPECT_EQ(refused(Refusal::too_long), 30U);
}

TEST_F(Lists, AListThatShrinksEndsAndOneThatGrowsIsNotFollowed) {
  look_at_each = false;
  std::string text;
  for (int i = 0; i < 50'000; ++i) text += in("file" + std::to_string(i)) + "\n";
  PathEntry entry;
  write(text);
  ASSERT_TRUE(open());
  ASSERT_EQ(reader->next(entry), PathList::Next::entry);
  ASSERT_EQ(truncate(list.c_str(), 200'000), 0);
  const std::size_t got = rest().size();
  EXPECT_GT(got, 1000U);
  EXPECT_LT(got, 49'000U);
  ::testing::internal::CaptureStderr();
  reader->log();
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("was changed while it was being read"),
            std::string::npos);

  write(text);
  ASSERT_TRUE(open());
  write(text + text);
  EXPECT_EQ(rest().size(), 50'000U);

  write(text);
  ASSERT_TRUE(open());
  unlink(list.c_str());
  EXPECT_EQ(rest().size(), 50'000U) << "a list that is gone can be read on";
}

TEST_F(Lists, AHostThatClosesItsDescriptorsEndsTheList) {
  look_at_each = false;
  std::string text;
  for (int i = 0; i < 50'000; ++i) text += in("file" + std::to_string(i)) + "\n";
  write(text);
  EXPECT_EQ(tests::run_in_child([&] {
              if (!open()) return 1;
              close_range(3, ~0U, 0);
              for (int i = 0; i < 1100; ++i) ::open("/etc/passwd", O_RDONLY | O_CLOEXEC);
              rest();
              CHILD_CHECK(last == PathList::Next::error && reader->error() == EBADF);
              CHILD_CHECK(refused() == 0);
              return 0;
            }),
            0);
}

TEST_F(Lists, KeepTheirDescriptorOutOfTheWay) {
  write(in("a"));
  const int before = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ASSERT_TRUE(open());
  const int after = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(after, before + 1);
  close(before);
  close(after);
}

TEST_F(Lists, GarbageIsCountedAndGivesNoWrongPath) {
  std::mt19937 random(7);
  const std::string_view pieces[] = {"/",  "..", ".",    "-",    "#", "\n",
                                     "\r", " ",  "\xff", "data", "x"};
  for (int round = 0; round < 60; ++round) {
    std::string text;
    const int kind = round % 3;
    while (text.size() < 20'000) {
      if (kind == 0) {
        text += static_cast<char>(random());
      } else {
        text += pieces[random() % std::size(pieces)];
        if (kind == 2 && random() % 50 == 0) text += prefix;
      }
    }
    write(text);
    look_at_each = round % 2 == 0;
    ASSERT_TRUE(open());
    for (const auto& path : rest()) {
      const std::string whole = path.starts_with('/') ? path : in(path);
      ASSERT_TRUE(base::is_at_or_below(whole, prefix)) << whole;
      ASSERT_EQ(whole.find("//"), std::string::npos);
      ASSERT_FALSE((whole + "/").find("/../") != std::string::npos ||
                   (whole + "/").find("/./") != std::string::npos);
    }
    ASSERT_EQ(last, PathList::Next::end);
  }
}

TEST_F(Lists, TenMillionLinesTakeNoMemory) {
  look_at_each = false;
  constexpr std::uint64_t k_lines = 10'000'000;
  {
    // The list repeats one block of ten thousand lines.
    const int fd = ::open(list.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    std::string block;
    for (int i = 0; i < 10'000; ++i) block += prefix + "/n/" + std::to_string(i % 10) + "\n";
    for (std::uint64_t i = 0; i < k_lines / 10'000; ++i)
      ASSERT_EQ(::write(fd, block.data(), block.size()), static_cast<ssize_t>(block.size()));
    close(fd);
  }
  struct ::rusage before {
  }, after{};
  ASSERT_TRUE(open());
  getrusage(RUSAGE_SELF, &before);
  PathEntry entry;
  std::uint64_t n = 0;
  while (reader->next(entry) == PathList::Next::entry) n += entry.path[0] == '/';
  getrusage(RUSAGE_SELF, &after);
  EXPECT_EQ(n, k_lines);
  // A sanitizer itself uses memory.
  if (!tests::k_asan && !tests::k_tsan) {
    EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 1024) << "KiB";
  }
  RecordProperty("maxrss_growth_kib", static_cast<int>(after.ru_maxrss - before.ru_maxrss));
}

}  // namespace
}  // namespace cube::prefetch::testing
