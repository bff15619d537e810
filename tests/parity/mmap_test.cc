// Mappings of served files. A file of 32 KiB or more is mapped from its record, and a smaller file
// from a new layout. The tests use sizes on both sides of this limit. In the variant "ring" of
// run_parity.py, all mappings are copies.
#include "tests/support/parity_case.h"

namespace {

constexpr std::size_t k_sizes[] = {1, 100, 4096, 5000, 32767, 32768, 40000, 65536, 200001};

int open_sized(cube::parity::Case& t, std::size_t size) {
  const std::string name = "f" + std::to_string(size);
  t.line(name);
  if (access(t / name, F_OK) != 0) t.file(name, size);
  return CALL(open(t / name, O_RDONLY));
}
std::size_t pages(std::size_t n) { return (n + 4095) / 4096 * 4096; }

}  // namespace

PARITY(Map, ReadsTheBytesAndTrailingZeros) {
  for (const std::size_t size : k_sizes) {
    for (const int flags :
         {MAP_PRIVATE, MAP_SHARED, MAP_SHARED_VALIDATE, MAP_PRIVATE | MAP_POPULATE}) {
      const int fd = open_sized(t, size);
      char* const at = CALL(static_cast<char*>(mmap(nullptr, size, PROT_READ, flags, fd, 0)));
      t.expect_served(fd);
      CALL(close(fd));
      t.bytes("mapped", at, pages(size));
      CALL(munmap(at, size));
    }
  }
}

PARITY(Map, PrivateWritesStayPrivate) {
  for (const std::size_t size : k_sizes) {
    const int fd = open_sized(t, size);
    char* const at =
        CALL(static_cast<char*>(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0)));
    std::memset(at, 'W', pages(size));
    t.bytes("written", at, pages(size));
    char* const other =
        CALL(static_cast<char*>(mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0)));
    t.bytes("other", other, pages(size));
    std::string got(size, 0);
    CALL(pread(fd, got.data(), size, 0));
    t.bytes("read", got.data(), size);
    CALL(close(fd));
    const int again = CALL(open(t / ("f" + std::to_string(size)), O_RDONLY));
    CALL(read(again, got.data(), size));
    EXPECT_EQ(got, cube::parity::content_of("f" + std::to_string(size), size));
    CALL(close(again));
    t.bytes("still written", at, pages(size));
    CALL(munmap(at, size));
    CALL(munmap(other, size));
  }
}

PARITY(Map, SharedAndWritableIsRefused) {
  for (const std::size_t size : {100UL, 40000UL}) {
    const int fd = open_sized(t, size);
    EXPECT_EQ(CALL(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)), MAP_FAILED);
    EXPECT_EQ(errno, EACCES);
    CALL(mmap(nullptr, size, PROT_WRITE, MAP_SHARED, fd, 0));
    CALL(close(fd));
    const int again = CALL(open(t / ("f" + std::to_string(size)), O_RDONLY));
    void* const shared = CALL(mmap(nullptr, size, PROT_READ, MAP_SHARED, again, 0));
    CALL(mprotect(shared, size, PROT_READ | PROT_WRITE));
    EXPECT_EQ(errno, EACCES);
    CALL(mprotect(shared, size, PROT_NONE));
    CALL(mprotect(shared, size, PROT_READ));
    CALL(munmap(shared, size));
    void* const secret = CALL(mmap(nullptr, size, PROT_READ, MAP_PRIVATE, again, 0));
    CALL(mprotect(secret, size, PROT_READ | PROT_WRITE));
    std::memset(secret, 'X', size);
    std::string got(size, 0);
    CALL(pread(again, got.data(), size, 0));
    t.bytes("read", got.data(), size);
    CALL(munmap(secret, size));
    CALL(close(again));
  }
}

PARITY(Map, OffsetsAndLengths) {
  for (const std::size_t size : {100UL, 10000UL, 40000UL, 200001UL}) {
    const int fd = open_sized(t, size);
    for (const off_t offset :
         {0L, 4096L, 8192L, 36864L, 196608L, 204800L, 1L << 40, 1L, 4095L, -4096L}) {
      for (const std::size_t length : {1UL, 4096UL, 4097UL, 8192UL, 0UL}) {
        t.line(std::to_string(offset) + " " + std::to_string(length));
        char* const at =
            CALL(static_cast<char*>(mmap(nullptr, length, PROT_READ, MAP_PRIVATE, fd, offset)));
        if (at == MAP_FAILED) continue;
        const std::size_t there = offset < static_cast<off_t>(pages(size))
                                      ? std::min(pages(size) - offset, pages(length))
                                      : 0;
        t.bytes("mapped", at, there);
        CALL(munmap(at, length));
      }
    }
    CALL(mmap(nullptr, SIZE_MAX, PROT_READ, MAP_PRIVATE, fd, 0));
    CALL(mmap(nullptr, 1UL << 47, PROT_READ, MAP_PRIVATE, fd, 0));
    CALL(close(fd));
  }
}

PARITY(Map, BeyondTheEndIsABusError) {
  for (const std::size_t size : {100UL, 40000UL}) {
    t.in_child([&] {
      const int fd = open_sized(t, size);
      char* const at =
          CALL(static_cast<char*>(mmap(nullptr, 1 << 20, PROT_READ, MAP_SHARED, fd, 0)));
      t.bytes("mapped", at, pages(size));
      struct sigaction action {};
      action.sa_handler = [](int signal) { _exit(signal); };
      sigaction(SIGBUS, &action, nullptr);
      sigaction(SIGSEGV, &action, nullptr);
      std::fflush(nullptr);
      if (static_cast<volatile char*>(at)[pages(size)] == 0) _exit(77);
      _exit(78);
    });
  }
}

PARITY(Map, OddFlagsAndFds) {
  const std::size_t size = 40000;
  const int fd = open_sized(t, size);
  CALL(mmap(nullptr, size, PROT_READ, 0, fd, 0));
  CALL(mmap(nullptr, size, PROT_READ, MAP_PRIVATE | MAP_SHARED | 0x10000000, fd, 0) == MAP_FAILED);
  CALL(mmap(nullptr, size, PROT_READ, MAP_PRIVATE, -1, 0));
  CALL(mmap(nullptr, size, PROT_READ, MAP_PRIVATE, 999, 0));
  CALL(mmap(nullptr, size, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0));
  CALL(mmap(nullptr, size, PROT_NONE, MAP_PRIVATE, fd, 0));
  CALL(mmap(nullptr, size, PROT_READ, MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0));
  char* const zeros =
      CALL(static_cast<char*>(mmap(nullptr, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, fd, 0)));
  t.bytes("anonymous", zeros, 4096);
  CALL(close(fd));
  CALL(mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0));
  EXPECT_EQ(errno, EBADF);
  const int writer = CALL(open(t / "f40000", O_WRONLY));
  CALL(mmap(nullptr, size, PROT_READ, MAP_PRIVATE, writer, 0));
  CALL(close(writer));
}

PARITY(Map, EmptyFile) {
  const int fd = open_sized(t, 0);
  CALL(mmap(nullptr, 0, PROT_READ, MAP_PRIVATE, fd, 0));
  EXPECT_EQ(errno, EINVAL);
  void* const at = CALL(mmap(nullptr, 100, PROT_READ, MAP_PRIVATE, fd, 0));
  CALL(munmap(at, 100));
  CALL(close(fd));
}

PARITY(Map, AtAFixedPlace) {
  for (const std::size_t size : {5000UL, 40000UL}) {
    char* const room =
        static_cast<char*>(mmap(nullptr, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    const int fd = open_sized(t, size);
    char* at = CALL(
        static_cast<char*>(mmap(room + 8192, size, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0)));
    EXPECT_EQ(at, room + 8192);
    t.bytes("fixed", at, pages(size));
    at = CALL(
        static_cast<char*>(mmap(room + 8192, 4096, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 4096)));
    t.bytes("over itself", at, 4096);
    CALL(mmap(room + 8192, size, PROT_READ, MAP_PRIVATE | MAP_FIXED_NOREPLACE, fd, 0));
    EXPECT_EQ(errno, EEXIST);
    CALL(mmap(room + 1, size, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0));
    at = CALL(static_cast<char*>(
        mmap(room + 8192, size, PROT_READ, MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS, -1, 0)));
    t.bytes("anonymous over it", at, pages(size));
    CALL(munmap(room, 1 << 20));
    CALL(close(fd));
  }
}

PARITY(Map, PartsAreUnmapped) {
  const std::size_t size = 200001;
  const int fd = open_sized(t, size);
  for (int how = 0; how < 4; ++how) {
    char* const at = CALL(static_cast<char*>(mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0)));
    if (how == 0) CALL(munmap(at, 8192));
    if (how == 1) CALL(munmap(at + 8192, 8192));
    if (how == 2) CALL(munmap(at + 8192, pages(size) - 8192));
    if (how == 3) CALL(munmap(at + 1, 8192));
    if (how != 0) t.bytes("head", at, 8192);
    if (how == 0 || how == 1) t.bytes("tail", at + 16384, pages(size) - 16384);
    CALL(munmap(at, size));
  }
  CALL(munmap(nullptr, 0));
  CALL(close(fd));
}

PARITY(Map, MovedAndGrownMappings) {
  for (const std::size_t size : {5000UL, 200001UL}) {
    const int fd = open_sized(t, size);
    char* const at = CALL(static_cast<char*>(mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0)));
    char* const less = CALL(static_cast<char*>(mremap(at, size, 4096, 0)));
    t.bytes("less", less, 4096);
    char* const back = CALL(static_cast<char*>(mremap(less, 4096, pages(size), MREMAP_MAYMOVE)));
    if (back != MAP_FAILED) t.bytes("back", back, pages(size));
    CALL(close(fd));
  }
}

PARITY(Map, AdviceAndSync) {
  for (const std::size_t size : {5000UL, 40000UL}) {
    const int fd = open_sized(t, size);
    char* const at = CALL(static_cast<char*>(mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0)));
    CALL(msync(at, size, MS_SYNC));
    CALL(msync(at, size, MS_ASYNC));
    CALL(msync(at, size, MS_INVALIDATE));
    for (const int advice :
         {MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL, MADV_WILLNEED, MADV_DONTNEED}) {
      CALL(madvise(at, size, advice));
      t.bytes("after advice", at, pages(size));
    }
    unsigned char in_core[64];
    CALL(mincore(at, size, in_core));
    CALL(mlock(at, size));
    CALL(munlock(at, size));
    CALL(close(fd));
    CALL(munmap(at, size));
    const int again = CALL(open(t / ("f" + std::to_string(size)), O_RDONLY));
    char* const secret = CALL(
        static_cast<char*>(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, again, 0)));
    secret[10] = 'Z';
    CALL(madvise(secret, size, MADV_DONTNEED));
    // The private writes are gone, and the file's bytes are visible again.
    t.bytes("after MADV_DONTNEED", secret, pages(size));
    CALL(close(again));
  }
}

PARITY(Map, SurvivesCloseUnlinkAndFork) {
  for (const std::size_t size : {5000UL, 40000UL}) {
    const int fd = open_sized(t, size);
    char* const shared =
        CALL(static_cast<char*>(mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0)));
    char* const secret =
        CALL(static_cast<char*>(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0)));
    secret[0] = 'S';
    CALL(close(fd));
    CALL(unlink(t / ("f" + std::to_string(size))));
    t.bytes("shared", shared, pages(size));
    t.in_child([&] {
      t.bytes("shared", shared, pages(size));
      t.bytes("private", secret, pages(size));
      secret[1] = 'C';
      CALL(munmap(shared, size));
    });
    t.bytes("private", secret, pages(size));
    t.bytes("shared", shared, pages(size));
  }
}

PARITY(Map, SharedMappingSeesLaterWrites) {
  // The kernel has one page cache: a mapping made before a write through another fd sees the write.
  for (const std::size_t size : {5000UL, 40000UL}) {
    const int fd = open_sized(t, size);
    const char* const before =
        CALL(static_cast<char*>(mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0)));
    t.bytes("before", before, 16);
    const int writer = CALL(open(t / ("f" + std::to_string(size)), O_WRONLY));
    CALL(pwrite(writer, "changed!", 8, 0));
    CALL(close(writer));
    const char* const after =
        CALL(static_cast<char*>(mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0)));
    t.bytes("mapped after", after, 16);
    CALL(close(fd));
  }
}

PARITY(Map, AfterItsOwnFdIsGone) {
  // The program closes every fd, or opens another file at these fds.
  for (const int how : {0, 1, 2}) {
    const std::size_t size = 40000;
    int fd = open_sized(t, size);
    char* const first = CALL(static_cast<char*>(mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0)));
    CALL(close(fd));
    if (how != 0) close_range(700, 899, 0);
    const int other = CALL(open("/etc/passwd", O_RDONLY));
    if (how == 2) {
      for (int number = 800; number < 810; ++number) dup2(other, number);
      t.in_child([&] {
        char got[8];
        for (int number = 800; number < 810; ++number) CALL(pread(number, got, 8, 0));
      });
    }
    fd = CALL(open(t / "f40000", O_RDONLY));
    for (int i = 0; i < 3; ++i) {
      char* const at = CALL(static_cast<char*>(mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0)));
      t.bytes("mapped", at, pages(size));
      CALL(munmap(at, size));
    }
    t.bytes("first", first, pages(size));
    if (how == 2) {
      for (int number = 800; number < 810; ++number) {
        char got[8];
        CALL(static_cast<int>(pread(number, got, 8, 0)));
        close(number);
      }
    }
    CALL(close(fd));
    CALL(close(other));
    CALL(munmap(first, size));
  }
}
