// Threads on the same served files: every reader gets bytes or a plain error, and each byte once.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>

#include "tests/support/parity_case.h"

namespace {

// Makes a call while a request to cancel the thread is pending.
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
  // Old glibcs make it a cancellation point, unlike POSIX.
  if (cube::parity::is_libc_from("2.28")) line("lseek", [&] { lseek(fd, 10, SEEK_SET); });
  line("access", [&] { access(path, R_OK); });
  line("fcntl", [&] { fcntl(fd, F_GETFL); });
  line("dup", [&] { close_range(dup(fd), 1000, 0); });
  line("syscall", [&] { close_range(syscall(SYS_openat, AT_FDCWD, path, O_RDONLY), 1000, 0); });
  line("mmap", [&] { munmap(mmap(nullptr, 50000, PROT_READ, MAP_PRIVATE, fd, 0), 50000); });
  // Nothing was read, nor closed, nor left open.
  CALL(lseek(fd, 0, SEEK_CUR));
  CALL(read(fd, got, sizeof got));
  t.bytes("got", got, sizeof got);
  CALL(open(path, O_RDONLY));
}

PARITY(Thread, CloseWhileOthersRead) {
  const char* const path = t.file("a", 50000);
  const std::string wanted = cube::parity::content_of("a", 50000);
  std::atomic<int> wrong{0}, errors{0};
  std::atomic<int> shared{-1};
  std::atomic<bool> stop{false};
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      while (!stop) {
        char got[100];
        const int fd = shared;
        if (fd < 0) {
          sched_yield();
          continue;
        }
        const ssize_t n = pread(fd, got, sizeof got, 1000);
        // Closed a moment ago, or another file by now, which has the same bytes. In mode real an fd
        // that is being opened is a copy that is not whole yet: a thread that reads what it has
        // closed may find the end there.
        const bool not_whole =
            n == 0 && cube::parity::is_preloaded() && !cube::parity::is_virtual();
        if (n < 0 && errno == EBADF) {
          ++errors;
        } else if (!not_whole && (n != 100 || std::memcmp(got, wanted.data() + 1000, 100) != 0)) {
          ++wrong;
        }
      }
    });
  }
  for (int round = 0; round < 150; ++round) {
    shared = open(path, O_RDONLY);
    sched_yield();
    const int fd = shared.exchange(-1);
    if (round % 50 == 3) fsync(fd);
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
  for (const bool materialise : {false, true}) {
    const std::size_t size = 200000;
    const std::string name = materialise ? "b" : "a";
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
          if (materialise && i == 0 && total > size / 2) fsync(fd);
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
  // While two threads read on, a third makes it a kernel file: the bytes that are read meanwhile
  // count.
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
  // Many threads open and close plain and served files: none ever reads another's.
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
