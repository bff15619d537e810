// The ends of mappings: the bytes past a file's last page, for mappings from any offset, and
// mremap's effect on them.
#include <sys/mman.h>
#include <sys/syscall.h>

#include <cstring>
#include <fstream>

#include "tests/support/guarded.h"
#include "tests/support/parity_case.h"

namespace {

using cube::tests::guarded;

constexpr std::size_t k_page = 4096;
constexpr std::size_t k_sizes[] = {100, 4096, 9000, 40000, 65536};
std::size_t pages(std::size_t n) { return (n + k_page - 1) / k_page * k_page; }

// Prints a hash of each page's bytes, or the signal that reading the page raises.
void look(cube::parity::Case& t, const char* label, const char* at, std::size_t size) {
  for (std::size_t page = 0; page < pages(size); page += k_page) {
    const std::string text = std::string(label) + " " + std::to_string(page / k_page);
    const int fault = guarded([&] { t.bytes(text.c_str(), at + page, k_page); });
    if (fault != 0) t.line(text + ": signal " + std::to_string(fault));
  }
}

char* mapped(cube::parity::Case& t, std::size_t size, int flags, std::size_t length,
             off_t offset = 0) {
  const std::string name = "f" + std::to_string(size);
  if (access(t / name, F_OK) != 0) {
    t.file(name, size);
    // Another file follows in memory, so that no page after this file is present by chance.
    t.file("behind " + name, 40000);
  }
  const int fd = CALL(open(t / name, O_RDONLY));
  char* const at = CALL(static_cast<char*>(mmap(nullptr, length, PROT_READ, flags, fd, offset)));
  CALL(close(fd));
  return at;
}

// Returns a free range of addresses for a mapping.
char* room_of(std::size_t size) {
  return static_cast<char*>(mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

}  // namespace

PARITY(MapSize, BehindTheLastPageIsABusError) {
  for (const std::size_t size : k_sizes) {
    for (const off_t offset : {0L, 4096L, 8192L, 36864L}) {
      if (offset >= static_cast<off_t>(size)) continue;
      const std::size_t rest = pages(size - offset);
      // Lengths up to the file's end, one page beyond it, equal to the file's size, and larger than
      // the file. All but the first can extend past the file's end.
      for (const std::size_t length :
           {size - offset, rest, rest + 1, rest + k_page, size, pages(size) + k_page}) {
        t.line(std::to_string(size) + " from " + std::to_string(offset) + " of " +
               std::to_string(length));
        char* const at = mapped(t, size, MAP_SHARED, length, offset);
        if (at == MAP_FAILED) continue;
        look(t, "page", at, length);
        CALL(munmap(at, length));
      }
    }
  }
}

PARITY(MapSize, GrownBeyondTheEnd) {
  for (const int flags : {MAP_SHARED, MAP_PRIVATE}) {
    for (const std::size_t size : k_sizes) {
      for (const std::size_t more : {1UL, 5 * k_page}) {
        char* at = mapped(t, size, flags, size);
        at = CALL(static_cast<char*>(mremap(at, size, pages(size) + more, MREMAP_MAYMOVE)));
        if (at == MAP_FAILED) continue;
        look(t, "grown", at, pages(size) + more);
        CALL(mprotect(at, size, PROT_READ | PROT_WRITE));
        at = CALL(static_cast<char*>(mremap(at, pages(size) + more, size, 0)));
        look(t, "as it was", at, size);
        at = CALL(static_cast<char*>(mremap(at, size, pages(size) + more, MREMAP_MAYMOVE)));
        look(t, "grown again", at, pages(size) + more);
        CALL(munmap(at, pages(size) + more));
      }
    }
  }
}

PARITY(MapSize, GrownWithinTheFile) {
  for (const int flags : {MAP_SHARED, MAP_PRIVATE}) {
    for (const off_t offset : {0L, 8192L}) {
      const std::size_t size = 40000, rest = pages(size - offset);
      char* at = mapped(t, size, flags, k_page, offset);
      for (const std::size_t length : {2 * k_page, rest - 1, rest, rest + k_page}) {
        char* const to = CALL(static_cast<char*>(mremap(at, k_page, length, MREMAP_MAYMOVE)));
        if (to == MAP_FAILED) continue;
        look(t, "grown", to, length);
        at = CALL(static_cast<char*>(mremap(to, length, k_page, 0)));
      }
      look(t, "one page", at, k_page);
      CALL(munmap(at, k_page));
    }
  }
}

PARITY(MapSize, GrownAfterItHasMoved) {
  // The library must know the end of a mapping even after a move, so it must not identify mappings
  // only by address.
  for (const int flags : {MAP_SHARED, MAP_PRIVATE}) {
    for (const std::size_t size : {9000UL, 40000UL}) {
      char* const room = room_of(1 << 20);
      char* at = mapped(t, size, flags, size);
      at = CALL(
          static_cast<char*>(mremap(at, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, room + k_page)));
      EXPECT_EQ(at, room + k_page);
      at = CALL(static_cast<char*>(mremap(at, size, pages(size) + 3 * k_page, MREMAP_MAYMOVE)));
      look(t, "moved and grown", at, pages(size) + 3 * k_page);
      CALL(munmap(at, pages(size) + 3 * k_page));
      CALL(munmap(room, 1 << 20));
    }
  }
}

PARITY(MapSize, APartMovesAndGrows) {
  for (const int flags : {MAP_SHARED, MAP_PRIVATE}) {
    const std::size_t size = 40000, all = pages(size);
    char* const room = room_of(1 << 20);
    char* const at = mapped(t, size, flags, size);
    char* part = CALL(static_cast<char*>(
        mremap(at + 3 * k_page, k_page, k_page, MREMAP_MAYMOVE | MREMAP_FIXED, room)));
    look(t, "moved part", part, k_page);
    part = CALL(static_cast<char*>(mremap(part, k_page, all, MREMAP_MAYMOVE)));
    look(t, "grown part", part, all);
    look(t, "what is left", at, 3 * k_page);
    char* const last =
        CALL(static_cast<char*>(mremap(at + all - k_page, k_page, 4 * k_page, MREMAP_MAYMOVE)));
    look(t, "last page, grown", last, 4 * k_page);
    CALL(munmap(last, 4 * k_page));
    CALL(munmap(part, all));
    CALL(munmap(at, all));
    CALL(munmap(room, 1 << 20));
  }
}

PARITY(MapSize, APageMovesOntoItsOwnMapping) {
  for (const std::size_t size : {40000UL, 200000UL}) {
    char* const at = mapped(t, size, MAP_PRIVATE, size);
    char* page = at + k_page;
    CALL(mremap(at + 4 * k_page, k_page, k_page, MREMAP_MAYMOVE | MREMAP_FIXED, page) == page);
    look(t, "around it", at, 4 * k_page);
    page = CALL(static_cast<char*>(mremap(page, k_page, 12 * k_page, MREMAP_MAYMOVE)));
    look(t, "grown", page, 12 * k_page);
    CALL(munmap(page, 12 * k_page));
    CALL(munmap(at, pages(size)));
  }
}

PARITY(MapSize, WrittenPagesThatWereAddedStay) {
  const std::size_t size = 200000, first = 8 * k_page, grown = 20 * k_page;
  char* at = mapped(t, size, MAP_PRIVATE, first);
  CALL(mprotect(at, first, PROT_READ | PROT_WRITE));
  at = CALL(static_cast<char*>(mremap(at, first, grown, MREMAP_MAYMOVE)));
  // The added pages have the protection that the program has given to the others.
  t.line(std::to_string(guarded([&] { std::memcpy(at + 15 * k_page, "written", 7); })));
  at = CALL(static_cast<char*>(mremap(at, grown, grown - k_page, 0)));
  look(t, "shrunk", at, grown - k_page);
  char* const room = room_of(1 << 20);
  at = CALL(static_cast<char*>(
      mremap(at, grown - k_page, grown - 2 * k_page, MREMAP_MAYMOVE | MREMAP_FIXED, room)));
  look(t, "moved", at, grown - 2 * k_page);
  at = CALL(static_cast<char*>(mremap(at, grown - 2 * k_page, grown, MREMAP_MAYMOVE)));
  look(t, "grown again", at, grown);
  CALL(munmap(at, grown));
  CALL(munmap(room, 1 << 20));
}

PARITY(MapSize, AMappingThatTheProgramHasSplitDoesNotGrow) {
  for (const std::size_t size : {9000UL, 200000UL}) {
    char* const at = mapped(t, size, MAP_PRIVATE, 3 * k_page);
    CALL(mprotect(at + k_page, k_page, PROT_NONE));
    CALL(mremap(at, 3 * k_page, 6 * k_page, MREMAP_MAYMOVE) == MAP_FAILED);
    look(t, "as before", at, 3 * k_page);
    CALL(munmap(at, 3 * k_page));
  }
}

PARITY(MapSize, ADuplicateGrows) {
  for (const std::size_t size : {9000UL, 40000UL}) {
    char* const at = mapped(t, size, MAP_SHARED, size);
    for (const std::size_t length : {k_page, size, pages(size) + 2 * k_page}) {
      char* const twin = CALL(static_cast<char*>(mremap(at, 0, length, MREMAP_MAYMOVE)));
      if (twin == MAP_FAILED) continue;
      look(t, "twin", twin, length);
      CALL(munmap(twin, length));
    }
    CALL(munmap(at, size));
    char* const own = mapped(t, size, MAP_PRIVATE, size);
    CALL(mremap(own, 0, size, MREMAP_MAYMOVE));
    look(t, "own", own, size);
    CALL(munmap(own, size));
  }
}

PARITY(MapSize, ChildGrowsAnInheritedMapping) {
  for (const int flags : {MAP_SHARED, MAP_PRIVATE}) {
    for (const std::size_t size : {9000UL, 40000UL}) {
      char* const at = mapped(t, size, flags, size);
      t.in_child([&] {
        char* const to =
            CALL(static_cast<char*>(mremap(at, size, pages(size) + 2 * k_page, MREMAP_MAYMOVE)));
        look(t, "grown", to, pages(size) + 2 * k_page);
      });
      look(t, "the parent's", at, size);
      CALL(munmap(at, size));
    }
  }
}

PARITY(MapSize, MemoryThatReplacesAPartIsLeftToTheProgram) {
  // Memory of the program in the middle of a mapping grows beyond the file's end and keeps its
  // contents.
  const std::size_t size = 40000;
  char* const room = room_of(1 << 20);
  const int fd = CALL(open(t.file("a", size), O_RDONLY));
  char* const at =
      CALL(static_cast<char*>(mmap(room, size, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0)));
  CALL(close(fd));
  char* own = CALL(static_cast<char*>(mmap(at + 2 * k_page, k_page, PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0)));
  std::memset(own, 'M', k_page);
  own = CALL(static_cast<char*>(mremap(own, k_page, 64 * k_page, MREMAP_MAYMOVE)));
  look(t, "memory", own, 64 * k_page);
  own[50 * k_page] = 'N';
  look(t, "written", own, 64 * k_page);
  look(t, "before", at, 2 * k_page);
  look(t, "behind", at + 3 * k_page, pages(size) - 3 * k_page);
  CALL(munmap(own, 64 * k_page));
  CALL(munmap(room, 1 << 20));
}

PARITY(MapSize, AFailedChangeChangesNothing) {
  const std::size_t size = 40000;
  char* at = mapped(t, size, MAP_SHARED, size);
  CALL(mremap(at, size, 1UL << 47, MREMAP_MAYMOVE));
  CALL(mremap(at, size, size, 0x40));
  CALL(mremap(at, size, size, MREMAP_FIXED | MREMAP_MAYMOVE, at + k_page));
  const int fd = CALL(open(t / "f40000", O_RDONLY));
  // The kernel refuses this, because the file is open only for reading.
  CALL(mmap(at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0));
  CALL(close(fd));
  at = CALL(static_cast<char*>(mremap(at, size, pages(size) + 2 * k_page, MREMAP_MAYMOVE)));
  look(t, "grown", at, pages(size) + 2 * k_page);
  CALL(munmap(at, pages(size) + 2 * k_page));
}

PARITY(MapSize, CopiesTakeAPartOfTheMemoryAndGiveItBack) {
  // 45 files are more than a sixteenth of the memory that the variant "ring" has. The kernel maps
  // the rest itself.
  constexpr std::size_t k_files = 45, k_size = 40000;
  for (std::size_t i = 0; i < k_files; ++i) t.file("f" + std::to_string(i), k_size);
  const auto copies = [] {
    std::ifstream maps("/proc/self/maps");
    std::size_t count = 0;
    for (std::string line; std::getline(maps, line);)
      count += line.find("/memfd:cubeshim") != std::string::npos ? 1 : 0;
    return count;
  };
  for (int round = 0; round < 2; ++round) {
    char* maps[k_files];
    for (std::size_t i = 0; i < k_files; ++i) {
      const int fd = CALL(open(t / ("f" + std::to_string(i)), O_RDONLY));
      maps[i] = CALL(static_cast<char*>(mmap(nullptr, k_size, PROT_READ, MAP_SHARED, fd, 0)));
      if (i < 10) t.expect_served(fd);
      CALL(close(fd));
    }
    if (t.is_covered() && getenv("PARITY_RING") != nullptr) {
      EXPECT_GT(copies(), 10U);
      EXPECT_LE(copies() * pages(k_size), (24U << 20) / 16);
    }
    // A child has its own share, no matter what it unmaps.
    t.in_child([&] {
      for (char* const at : maps) munmap(at, k_size);
      const int fd = CALL(open(t / "f0", O_RDONLY));
      char* const at =
          CALL(static_cast<char*>(mmap(nullptr, k_size, PROT_READ, MAP_SHARED, fd, 0)));
      t.bytes("mapped by a child", at, k_size);
      if (t.is_covered() && getenv("PARITY_RING") != nullptr) {
        EXPECT_EQ(copies(), 1U);
      }
    });
    for (char* const at : maps) {
      t.bytes("mapped", at, pages(k_size));
      // Unmaps two parts, so that the test covers their count, too.
      CALL(munmap(at, k_page));
      CALL(munmap(at + k_page, k_size - k_page));
    }
    EXPECT_EQ(copies(), 0U);
  }
}

PARITY(MapSize, ByCallNumber) {
  const std::size_t size = 9000;
  const int fd = CALL(open(t.file("a", size), O_RDONLY));
  t.file("behind a", 40000);
  const auto call = [&](long number, auto... arguments) {
    return reinterpret_cast<char*>(syscall(number, arguments...));
  };
  char* at = CALL(call(SYS_mmap, nullptr, size, static_cast<long>(PROT_READ),
                       static_cast<long>(MAP_SHARED), static_cast<long>(fd), 0L));
  CALL(close(fd));
  at = CALL(call(SYS_mremap, at, size, size + 3 * k_page, static_cast<long>(MREMAP_MAYMOVE), 0L));
  look(t, "grown", at, size + 3 * k_page);
  CALL(syscall(SYS_munmap, at, size + 3 * k_page));
  t.line("gone: signal " + std::to_string(guarded([&] { t.bytes("still there", at, k_page); })));
}
