// Changes to parts of mappings and mappings over each other: mprotect, mremap, munmap, MAP_FIXED,
// advice. Also how a child sees them.
#include <sys/syscall.h>
#include <sys/wait.h>

#include <csignal>

#include "tests/support/parity_case.h"

namespace {

constexpr std::size_t k_page = 4096;
std::size_t pages(std::size_t n) { return (n + k_page - 1) / k_page * k_page; }

char* mapped(cube::parity::Case& t, const char* name, std::size_t size, int protection, int flags,
             off_t at = 0) {
  if (access(t / name, F_OK) != 0) t.file(name, size);
  const int fd = CALL(open(t / name, O_RDONLY));
  char* const map = CALL(static_cast<char*>(mmap(nullptr, size - at, protection, flags, fd, at)));
  CALL(close(fd));
  return map;
}
// Returns the signal that an access to this byte raises, or 0.
int touch(cube::parity::Case& t, volatile char* at, bool writes) {
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);
    signal(SIGBUS, SIG_DFL);
    if (writes) *at = 'x';
    _exit(*at == *at ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  t.line("touch " + std::to_string(status & 0x7f));
  return status & 0x7f;
}

}  // namespace

PARITY(Mapping, EverySymbol) {
  const int fd = CALL(open(t.file("a", 70000), O_RDONLY));
  using Map = void*(void*, size_t, int, int, int, off_t);
  for (const char* name : {"mmap", "mmap64"}) {
    errno = cube::parity::k_errno_kept;
    void* const at = t.note(
        name, cube::parity::function<Map>(name)(nullptr, 70000, PROT_READ, MAP_PRIVATE, fd, 4096));
    t.bytes(name, at, 65904);
    CALL(munmap(at, 70000));
  }
  void* const raw = CALL(
      reinterpret_cast<void*>(syscall(SYS_mmap, nullptr, 70000UL, static_cast<long>(PROT_READ),
                                      static_cast<long>(MAP_PRIVATE), static_cast<long>(fd), 0L)));
  t.bytes("by number", raw, 70000);
  CALL(munmap(raw, 70000));
}

PARITY(Mapping, ProtectionInParts) {
  for (const std::size_t size : {9000UL, 70000UL}) {
    const std::string name = "f" + std::to_string(size);
    char* const map = mapped(t, name.c_str(), size, PROT_READ, MAP_PRIVATE);
    CALL(mprotect(map + k_page, k_page, PROT_NONE));
    touch(t, map + k_page, false);
    touch(t, map, false);
    CALL(mprotect(map + k_page, k_page, PROT_READ | PROT_WRITE));
    map[k_page] = 'W';
    touch(t, map, true);
    touch(t, map + k_page + 1, true);
    CALL(mprotect(map, pages(size), PROT_READ));
    t.bytes("all", map, pages(size));
    CALL(mprotect(map, pages(size), PROT_READ | PROT_EXEC));
    CALL(mprotect(map + 1, k_page, PROT_READ));
    EXPECT_EQ(errno, EINVAL);
    CALL(mprotect(map, 0, PROT_READ));
    CALL(munmap(map, size));
    CALL(mprotect(map, k_page, PROT_READ));
    EXPECT_EQ(errno, ENOMEM);
    char* const shared = mapped(t, name.c_str(), size, PROT_READ, MAP_SHARED);
    CALL(mprotect(shared, size, PROT_READ | PROT_WRITE));
    EXPECT_EQ(errno, EACCES);
    touch(t, shared, true);
    CALL(munmap(shared, size));
  }
}

PARITY(Mapping, MovedCutAndJoined) {
  for (const int flags : {MAP_PRIVATE, MAP_SHARED}) {
    for (const std::size_t size : {9000UL, 70000UL}) {
      const std::string name = "f" + std::to_string(size);
      char* map = mapped(t, name.c_str(), size, PROT_READ, flags);
      char* const room =
          static_cast<char*>(mmap(nullptr, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
      map = CALL(
          static_cast<char*>(mremap(map, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, room + 8192)));
      EXPECT_EQ(map, room + 8192);
      t.bytes("moved", map, pages(size));
      map = CALL(static_cast<char*>(mremap(map, size, k_page, 0)));
      t.bytes("cut", map, k_page);
      CALL(mremap(map, 0, k_page, 0));
      CALL(mremap(map + 1, k_page, k_page, 0));
      CALL(mremap(map, k_page, 0, 0));
      CALL(mremap(map, k_page, k_page, 0x40));
      CALL(munmap(room, 1 << 20));
      CALL(mremap(room, k_page, k_page, MREMAP_MAYMOVE));
      EXPECT_EQ(errno, EFAULT);
    }
  }
}

PARITY(Mapping, GrownMappingsShowTheRestOfTheFile) {
  const std::size_t size = 70000;
  char* const map = mapped(t, "a", size, PROT_READ, MAP_SHARED);
  CALL(munmap(map + k_page, pages(size) - k_page));
  char* const whole = CALL(static_cast<char*>(mremap(map, k_page, size, MREMAP_MAYMOVE)));
  t.bytes("whole", whole, pages(size));
  CALL(munmap(whole, size));
  // The mapping of a kernel file grows, too.
  const int fd = CALL(open(t / "a", O_RDONLY));
  CALL(fsync(fd));
  char* const real = CALL(static_cast<char*>(mmap(nullptr, k_page, PROT_READ, MAP_SHARED, fd, 0)));
  char* const grown = CALL(static_cast<char*>(mremap(real, k_page, size, MREMAP_MAYMOVE)));
  t.bytes("grown", grown, pages(size));
  CALL(munmap(grown, size));
  CALL(close(fd));
}

PARITY(Mapping, OldAddressStaysWithDontUnmap) {
  const std::size_t size = 70000;
  char* const map = mapped(t, "a", size, PROT_READ | PROT_WRITE, MAP_PRIVATE);
  map[0] = 'M';
  char* const moved =
      CALL(static_cast<char*>(mremap(map, size, size, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, nullptr)));
  if (moved != MAP_FAILED) {
    t.bytes("moved", moved, pages(size));
    t.bytes("old place", map, pages(size));
    CALL(munmap(moved, size));
  }
  CALL(munmap(map, size));
}

PARITY(Mapping, OverOneAnother) {
  for (const std::size_t size : {9000UL, 70000UL}) {
    const std::string name = "f" + std::to_string(size), other = "g" + std::to_string(size);
    char* const map = mapped(t, name.c_str(), size, PROT_READ, MAP_SHARED);
    const int fd = CALL(open(t.file(other, size), O_RDONLY));
    CALL(mmap(map + k_page, k_page, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0));
    t.bytes("a page of another file", map, pages(size));
    CALL(mmap(map, k_page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS, -1, 0));
    t.bytes("a page of nothing", map, pages(size));
    CALL(munmap(map + k_page, k_page));
    touch(t, map + k_page, false);
    t.bytes("the rest", map + 2 * k_page, pages(size) - 2 * k_page);
    const int writer = CALL(open(t / other, O_RDWR));
    char* const shared = CALL(static_cast<char*>(
        mmap(map, k_page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, writer, 0)));
    CALL(close(writer));
    shared[3] = 'S';
    char got[8] = {};
    CALL(pread(fd, got, 8, 0));
    t.bytes("written through the mapping", got, 8);
    CALL(msync(map, k_page, MS_SYNC));
    CALL(munmap(map, size));
    CALL(close(fd));
    CALL(read(CALL(open(t / other, O_RDONLY)), got, 8));
    t.bytes("opened again", got, 8);
  }
}

#if defined(MAP_32BIT)
constexpr int k_low = MAP_32BIT;
#else
constexpr int k_low = 0;  // aarch64 has no such flag
#endif

PARITY(Mapping, FlagsOfEveryKind) {
  for (const std::size_t size : {9000UL, 70000UL}) {
    const std::string name = "f" + std::to_string(size);
    t.file(name, size);
    for (const int flags :
         {k_low, MAP_DENYWRITE, MAP_EXECUTABLE, MAP_GROWSDOWN, MAP_LOCKED, MAP_NONBLOCK,
          MAP_NORESERVE, MAP_POPULATE, MAP_STACK, MAP_HUGETLB, MAP_SYNC, 0x8000000}) {
      for (const int kind : {MAP_PRIVATE, MAP_SHARED, MAP_SHARED_VALIDATE}) {
        t.line("flags " + std::to_string(flags | kind));
        const int fd = CALL(open(t / name, O_RDONLY));
        char* const map =
            CALL(static_cast<char*>(mmap(nullptr, size, PROT_READ, kind | flags, fd, 0)));
        if (map != MAP_FAILED) {
          t.bytes("mapped", map, pages(size));
          if (flags == k_low)
            t.line(reinterpret_cast<std::uintptr_t>(map) < (1ULL << 32) ? "low" : "high");
          CALL(munmap(map, size));
        }
        CALL(close(fd));
      }
    }
    for (const int protection :
         {PROT_NONE, PROT_READ, PROT_WRITE, PROT_EXEC, PROT_READ | PROT_WRITE,
          PROT_READ | PROT_EXEC, PROT_READ | PROT_WRITE | PROT_EXEC, 0x40}) {
      for (const int kind : {MAP_PRIVATE, MAP_SHARED}) {
        t.line("protection " + std::to_string(protection));
        char* const map = mapped(t, name.c_str(), size, protection, kind);
        if (map == MAP_FAILED) continue;
        touch(t, map, false);
        touch(t, map, true);
        CALL(munmap(map, size));
      }
    }
  }
}

PARITY(Mapping, AdviceOfEveryKind) {
  for (const int kind : {MAP_PRIVATE, MAP_SHARED}) {
    for (const std::size_t size : {9000UL, 70000UL}) {
      const std::string name = "f" + std::to_string(size);
      char* const map = mapped(t, name.c_str(), size, PROT_READ, kind);
      for (const int advice :
           {MADV_NORMAL, MADV_RANDOM, MADV_WILLNEED, MADV_DONTNEED, MADV_REMOVE, MADV_FREE,
            MADV_DONTDUMP, MADV_DODUMP, MADV_COLD, MADV_PAGEOUT, MADV_POPULATE_READ,
            MADV_POPULATE_WRITE, MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_MERGEABLE, 999}) {
        t.line("advice " + std::to_string(advice));
        CALL(madvise(map, size, advice));
        t.bytes("after", map, pages(size));
      }
      for (const int flags : {MS_SYNC, MS_ASYNC, MS_INVALIDATE, MS_SYNC | MS_ASYNC, 99})
        CALL(msync(map, size, flags));
      CALL(msync(map + 1, size, MS_SYNC));
      CALL(mlock(map, size));
      CALL(mlock2(map, size, MLOCK_ONFAULT));
      CALL(munlock(map, size));
      CALL(madvise(map, size, MADV_DONTFORK));
      touch(t, map, false);
      CALL(madvise(map, size, MADV_DOFORK));
      touch(t, map, false);
      CALL(madvise(map, size, MADV_WIPEONFORK));
      CALL(munmap(map, size));
    }
  }
}

PARITY(Mapping, OutliveEverything) {
  // A mapping remains valid even if the fd, the name and the cache's copy no longer exist.
  std::vector<char*> maps;
  for (int i = 0; i < 30; ++i)
    maps.push_back(
        mapped(t, ("f" + std::to_string(i)).c_str(), 3000 + i * 3000, PROT_READ, MAP_SHARED));
  for (int i = 0; i < 30; i += 3) CALL(unlink(t / ("f" + std::to_string(i))));
  t.in_child([&] {
    for (int i = 0; i < 30; ++i) t.bytes("in a child", maps[i], 3000 + i * 3000);
    for (int i = 0; i < 30; i += 2) CALL(munmap(maps[i], 3000 + i * 3000));
    t.in_child([&] {
      for (int i = 1; i < 30; i += 2) t.bytes("in a grandchild", maps[i], 3000 + i * 3000);
    });
    char* const own = mapped(t, "f1", 6000, PROT_READ, MAP_PRIVATE);
    t.bytes("own", own, 6000);
  });
  for (int i = 0; i < 30; ++i) t.bytes("in the parent", maps[i], 3000 + i * 3000);
  for (int i = 29; i >= 0; --i) CALL(munmap(maps[i], 3000 + i * 3000));
}

PARITY(Mapping, ShrinkingLeavesTheProgramsNextMappingAlone) {
  char* const all = CALL(static_cast<char*>(
      mmap(nullptr, 64 * k_page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)));
  memset(all, 'x', 64 * k_page);
  t.file("f", 300123);
  const int fd = CALL(open(t / "f", O_RDONLY));
  CALL(mmap(all, 16 * k_page, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 58 * k_page));
  CALL(close(fd));
  EXPECT_EQ(CALL(mremap(all, 64 * k_page, 32 * k_page, 0)), all);
  EXPECT_EQ(touch(t, all + 20 * k_page, false), 0);
  EXPECT_EQ(all[20 * k_page], 'x');
  EXPECT_EQ(all[31 * k_page], 'x');
  CALL(munmap(all, 32 * k_page));
}
