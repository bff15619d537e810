// Each message is one line, even if its text contains newlines.
#include "cache/base/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <thread>

#include "cache/base/error_text.h"

namespace cube::base {
namespace {

// Returns what `write` sends to stderr.
template <typename Write>
std::string stderr_of(Write&& write) {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return "no pipe";
  const int saved = dup(STDERR_FILENO);
  dup2(fds[1], STDERR_FILENO);
  write();
  dup2(saved, STDERR_FILENO);
  close(saved);
  close(fds[1]);
  std::string text(65536, '\0');
  const ssize_t n = read(fds[0], text.data(), text.size());
  close(fds[0]);
  text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return text;
}

struct Log : testing::Test {
  ~Log() override { set_log_level(LogLevel::warn); }
};

TEST_F(Log, LineHasLevelAndText) {
  EXPECT_EQ(stderr_of([] { log(LogLevel::warn, "{} is {}", "x", 3); }), "cubeshim: warn: x is 3\n");
  EXPECT_EQ(stderr_of([] { log(LogLevel::error, "e"); }), "cubeshim: error: e\n");
}

TEST_F(Log, LevelsBelowTheSetOneAreSilent) {
  EXPECT_EQ(stderr_of([] { log(LogLevel::info, "quiet"); }), "");
  set_log_level(LogLevel::debug);
  EXPECT_EQ(stderr_of([] { log(LogLevel::debug, "d"); }), "cubeshim: debug: d\n");
  set_log_level(LogLevel::error);
  EXPECT_EQ(stderr_of([] { log(LogLevel::warn, "quiet"); }), "");
}

TEST_F(Log, NewlinesInANameStayOneLine) {
  EXPECT_EQ(stderr_of([] { log(LogLevel::warn, "file {}", "/a\nb\r\nc"); }),
            "cubeshim: warn: file /a?b??c\n");
}

TEST_F(Log, LongTextIsCutAndStillEndsInANewline) {
  for (const std::size_t size : {1000U, 1023U, 1024U, 1025U, 5000U}) {
    const std::string text(size, 'x');
    const std::string line = stderr_of([&] { log(LogLevel::warn, "{}", text); });
    EXPECT_TRUE(line.ends_with("x\n"));
    EXPECT_EQ(line.find('\n'), line.size() - 1);
    EXPECT_LE(line.size(), 1100U);
    const std::string raw = stderr_of([&] { write_log_line(LogLevel::warn, text); });
    EXPECT_TRUE(raw.ends_with("x\n"));
    EXPECT_LE(raw.size(), 1100U);
  }
}

TEST_F(Log, ReplacesTerminalControlSequences) {
  const std::pair<const char*, const char*> shown[] = {
      {"a\tb\x1b[2Jc\x7f", "a?b?[2Jc?"},
      {"\u540d\u524d \u00e4 \U0001f600", "\u540d\u524d \u00e4 \U0001f600"},
      {"\xc2\x9b"
       "31m \xc2\xa0",
       "??31m \xc2\xa0"},  // CSI as one character
      {"\x9b \xff \xc0\x9b \xe0\x82\x9b \xf0\x80\x82\x9b",
       "? ? ?? ??? ????"},                                      // bare, and in longer spellings
      {"\xe5\x90", "??"},                                       // cut off
      {"\xf4\x90\x80\x80 \xf8\x88\x80\x80\x80", "???? ?????"},  // beyond the last character
  };
  for (const auto& [text, expected] : shown) {
    EXPECT_EQ(stderr_of([&, raw = text] { write_log_line(LogLevel::warn, raw); }),
              std::string("cubeshim: warn: ") + expected + "\n");
  }
}

TEST_F(Log, ErrnoStaysAsItWas) {
  const int saved = dup(STDERR_FILENO);
  close(STDERR_FILENO);
  errno = ERANGE;
  log(LogLevel::error, "nobody hears this");
  const int after = errno;
  dup2(saved, STDERR_FILENO);
  close(saved);
  EXPECT_EQ(after, ERANGE);
}

TEST_F(Log, LinesOfAThreadWithoutStderrAreWrittenByAnother) {
  const auto keep = [] {
    keep_lines_of_this_thread();
    for (int i = 0; i < 20; ++i) log(LogLevel::warn, "kept {}", i);
    write_kept_lines();
  };
  EXPECT_EQ(stderr_of([&] { std::thread(keep).join(); }), "");
  const std::string text = stderr_of([] { log(LogLevel::warn, "own"); });
  EXPECT_TRUE(text.starts_with("cubeshim: warn: kept 0\ncubeshim: warn: kept 1\n")) << text;
  EXPECT_TRUE(text.ends_with("cubeshim: warn: own\n")) << text;
  EXPECT_EQ(stderr_of([] { write_kept_lines(); }), "") << "twice";
}

// For a null pointer, fmt throws an exception, which would pass through frames of the program.
TEST_F(Log, ReportsAnErrorWithoutText) {
  const int odd = 300;
  ASSERT_EQ(strerrordesc_np(odd), nullptr);
  EXPECT_EQ(stderr_of([&] { log(LogLevel::warn, "{}", text_of_error(odd)); }),
            "cubeshim: warn: unknown error\n");
  EXPECT_EQ(stderr_of([] { log(LogLevel::warn, "{}", text_of_error(ENOENT)); }),
            "cubeshim: warn: No such file or directory\n");
}

}  // namespace
}  // namespace cube::base
