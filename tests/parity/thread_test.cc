// Threads that use the same served files. Every reader gets bytes or an error, and each byte is
// read once.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <iterator>
#include <string_view>
#include <thread>
#include <utility>

#include "tests/support/parity_case.h"

namespace {

// Makes the call while a cancellation of the thread is pending.
const char* what_cancels(const std::function<void()>& call) {
  pthread_t thread;
  const auto body = [](void* of) -> void* {
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
    pthread_cancel(pthread_self());
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, nullptr);
    (*static_cast<const std::function<void()>*>(of))();
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
    return nullptr;
  };
  if (pthread_create(&thread, nullptr, body, const_cast<std::function<void()>*>(&call)) != 0)
    return "no thread";
  void* result = nullptr;
  pthread_join(thread, &result);
  return result == PTHREAD_CANCELED ? "cancelled" : "goes on";
}

}  // namespace

PARITY(Thread, IsCancelledWhereLibcsCallsLetItBe) {
  const char* const path = t.file("a", 50000);
  const int fd = CALL(open(path, O_RDONLY));
  t.expect_served(fd);
  const int dir = CALL(open(t.root().c_str(), O_RDONLY | O_DIRECTORY));
  char got[16];
  const iovec part{got, sizeof got};
  struct stat st {};
  const auto line = [&](const char* name, const std::function<void()>& call) {
    t.line(std::string(name) + " " + what_cancels(call));
  };
  line("open", [&] { open(path, O_RDONLY); });
  line("open64", [&] { open64(path, O_RDONLY); });
  line("openat", [&] { openat(dir, "a", O_RDONLY); });
  line("fopen", [&] { fopen(path, "r"); });
  line("read", [&] { read(fd, got, sizeof got); });
  line("pread", [&] { pread(fd, got, sizeof got, 0); });
  line("readv", [&] { readv(fd, &part, 1); });
  line("preadv", [&] { preadv(fd, &part, 1, 0); });
  line("preadv2", [&] { preadv2(fd, &part, 1, -1, 0); });
  line("close", [&] { close(fd); });
  line("stat", [&] { stat(path, &st); });
  line("fstat", [&] { fstat(fd, &st); });
  // In old glibcs this call is a cancellation point, unlike in POSIX.
  if (cube::parity::is_libc_from("2.28")) line("lseek", [&] { lseek(fd, 10, SEEK_SET); });
  line("access", [&] { access(path, R_OK); });
  line("fcntl", [&] { fcntl(fd, F_GETFL); });
  line("dup", [&] { close_range(dup(fd), 1000, 0); });
  line("syscall", [&] { close_range(syscall(SYS_openat, AT_FDCWD, path, O_RDONLY), 1000, 0); });
  line("mmap", [&] { munmap(mmap(nullptr, 50000, PROT_READ, MAP_PRIVATE, fd, 0), 50000); });
  // Nothing was read or closed, and nothing was left open.
  CALL(lseek(fd, 0, SEEK_CUR));
  CALL(read(fd, got, sizeof got));
  t.bytes("got", got, sizeof got);
  CALL(open(path, O_RDONLY));
}

PARITY(Thread, CloseWhileOthersRead) {
  // The library opens its own files for a short time. Each gets the lowest free fd, possibly an fd
  // that the program has just closed. From this fd on, all fds are the program's.
  constexpr int k_high_fd = 100;
  constexpr std::size_t k_bytes = 100;
  const char* const paths[] = {t.file("a", 50000), t.file("b", 50000)};
  using cube::parity::content_of;
  const std::string contents[] = {content_of("a", 50000), content_of("b", 50000)};
  // Each round opens one of the two files. Its readers read another page than in the round before.
  const auto file_of = [](unsigned round) { return round / 2 % 2; };
  const auto place_of = [](unsigned round) { return 1000 + round % 11 * 4096; };
  std::atomic<int> wrong{0};
  std::atomic<std::uint64_t> shared{0};  // round:32 | fd:32; 0: none
  std::atomic<bool> stop{false};
  const auto is_right = [&](unsigned round, int fd, bool is_open, int error, std::string_view got) {
    const auto is_of = [&](unsigned file) {
      return got.size() == k_bytes && contents[file].compare(place_of(round), k_bytes, got) == 0;
    };
    if (is_of(file_of(round))) return true;
    if (is_open) return false;
    // The fd has been closed, and may refer to the other file by now.
    if (error == EBADF || is_of(1 - file_of(round))) return true;
    // The bytes must be exactly this page of one of the two files, and not part of it, another page
    // or a file of the library.
    const auto has_got = [&](const auto& content) { return content.find(got) != content.npos; };
    const bool is_theirs = std::any_of(std::begin(contents), std::end(contents), has_got);
    return fd < k_high_fd && (got.empty() || !is_theirs);
  };
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      while (!stop) {
        const std::uint64_t before = shared;
        const int fd = static_cast<int>(before);
        if (fd == 0) {
          sched_yield();
          continue;
        }
        const auto round = static_cast<unsigned>(before >> 32);
        char bytes[k_bytes];
        const ssize_t n = pread(fd, bytes, sizeof bytes, place_of(round));
        const int error = n < 0 ? errno : 0;
        const bool is_open = shared == before;
        const std::string_view got(bytes, n > 0 ? n : 0);
        if (is_right(round, fd, is_open, error, got) || ++wrong > 5) continue;
        const std::string where = "round " + std::to_string(round) + ", fd " + std::to_string(fd);
        const std::string text = testing::PrintToString(std::string(got));
        const char* const state = is_open ? " (open): " : " (closed): ";
        ADD_FAILURE() << where << state << n << ", errno " << error << ": " << text;
      }
    });
  }
  for (unsigned round = 0; round < 150; ++round) {
    int fd = open(paths[file_of(round)], O_RDONLY);
    if (round % 2 == 0) {
      const int high = fcntl(fd, F_DUPFD, k_high_fd);
      if (close(std::exchange(fd, high)) != 0) ++wrong;
    }
    shared = std::uint64_t{round} << 32 | static_cast<unsigned>(fd);
    sched_yield();
    if (round % 25 == 4) fsync(fd);
    shared = 0;
    if (round % 25 == 3) fsync(fd);
    if (round % 3 == 0) {
      const int other = dup(fd);
      close(other);
    }
    if (close(fd) != 0) ++wrong;
  }
  stop = true;
  for (std::thread& reader : readers) reader.join();
  t.line("wrong " + std::to_string(wrong));
  EXPECT_EQ(wrong, 0);
}

PARITY(Thread, SharedOffsetGivesEachByteOnce) {
  for (const bool materialize : {false, true}) {
    const std::size_t size = 200000;
    const std::string name = materialize ? "b" : "a";
    const int fd = CALL(open(t.file(name, size), O_RDONLY));
    std::atomic<std::size_t> total{0};
    std::vector<std::thread> readers;
    std::vector<std::string> parts(4);
    for (int i = 0; i < 4; ++i) {
      readers.emplace_back([&, i] {
        char got[997];
        for (ssize_t n; (n = read(fd, got, sizeof got)) > 0;) {
          parts[i].append(got, n);
          total += n;
          if (materialize && i == 0 && total > size / 2) fsync(fd);
        }
      });
    }
    for (std::thread& reader : readers) reader.join();
    std::string all;
    for (const std::string& part : parts) all += part;
    std::string wanted = cube::parity::content_of(name, size);
    std::sort(all.begin(), all.end());
    std::sort(wanted.begin(), wanted.end());
    t.line("total " + std::to_string(total) + (all == wanted ? ", each once" : ", not each once"));
    CALL(lseek(fd, 0, SEEK_CUR));
    CALL(close(fd));
  }
}

PARITY(Thread, SharedOffsetIsTakenOverBetweenTwoReads) {
  // While two threads read in a loop, a third turns the fd into a kernel file. The bytes that are
  // read during this change must also be right.
  const std::size_t size = 30000;
  const char* const path = t.file("a", size);
  int wrong = 0;
  for (int round = 0; round < 100; ++round) {
    const int fd = open(path, O_RDONLY);
    std::atomic<std::size_t> total{0};
    const auto read_all = [&] {
      char got[10];
      for (ssize_t n; (n = read(fd, got, sizeof got)) > 0;) total += static_cast<std::size_t>(n);
    };
    std::thread one(read_all), other(read_all);
    while (total < static_cast<std::size_t>(round) * 200) sched_yield();
    fsync(fd);
    one.join();
    other.join();
    if (total != size) ++wrong;
    close(fd);
  }
  t.line("wrong " + std::to_string(wrong));
  EXPECT_EQ(wrong, 0);
}

PARITY(Thread, FdsAreNeverGivenTwice) {
  // Many threads open and close plain and served files. No thread ever reads another thread's file.
  t.text("one", std::string(500, '1'));
  t.text("two", std::string(500, '2'));
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const std::string path = t.root() + (i % 2 == 0 ? "/one" : "/two");
      const char expected = i % 2 == 0 ? '1' : '2';
      for (int round = 0; round < 150; ++round) {
        const int fd = i == 3 ? memfd_create("x", 0) : open(path.c_str(), O_RDONLY);
        char got[8] = {};
        if (i == 3) pwrite(fd, "22222222", 8, 0);
        if (fd < 0 || pread(fd, got, 8, 0) != 8 || got[0] != expected || got[7] != expected)
          ++wrong;
        if (close(fd) != 0) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  t.line("wrong " + std::to_string(wrong));
  EXPECT_EQ(wrong, 0);
}
