// A mapping of a served file behaves like the kernel's mapping of a file under advice, protection,
// sync and fork. An anonymous copy with the same bytes would behave differently in nearly every
// line of this test.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "tests/support/guarded.h"
#include "tests/support/parity_case.h"

namespace {

using cube::tests::guarded;

constexpr std::size_t k_page = 4096;
// A file in one page, a file that ends past the page of its record, and a file whose record can be
// mapped directly.
constexpr std::size_t k_sizes[] = {100, 9000, 70000};
std::size_t pages(std::size_t n) { return (n + k_page - 1) / k_page * k_page; }

constexpr int k_advice[] = {
    MADV_NORMAL,      MADV_RANDOM,   MADV_SEQUENTIAL,    MADV_WILLNEED,       MADV_DONTNEED,
    MADV_FREE,        MADV_REMOVE,   MADV_DONTFORK,      MADV_WIPEONFORK,     MADV_KEEPONFORK,
    MADV_COLD,        MADV_PAGEOUT,  MADV_POPULATE_READ, MADV_POPULATE_WRITE, MADV_MERGEABLE,
    MADV_UNMERGEABLE, MADV_DONTDUMP, MADV_HUGEPAGE,      MADV_NOHUGEPAGE,     MADV_DONTNEED_LOCKED};

struct Kind {
  const char* name;
  int protection, flags;
};
constexpr Kind k_kinds[] = {{"private", PROT_READ, MAP_PRIVATE},
                            {"private, written", PROT_READ | PROT_WRITE, MAP_PRIVATE},
                            {"shared", PROT_READ, MAP_SHARED}};

std::string name_of(std::size_t size) { return "f" + std::to_string(size); }

// Returns a new mapping of the file of that size. The fd of the mapping is closed.
char* mapped(cube::parity::Case& t, std::size_t size, const Kind& kind) {
  const char* const path = t / name_of(size);
  if (access(path, F_OK) != 0) t.file(name_of(size), size);
  const int fd = open(path, O_RDONLY);
  auto* const at = static_cast<char*>(mmap(nullptr, size, kind.protection, kind.flags, fd, 0));
  close(fd);
  if (at == MAP_FAILED) t.line("cannot map " + name_of(size));
  return at;
}

// Logs the bytes of the mapping, or the signal that reading them raises.
void look(cube::parity::Case& t, const char* label, const char* at, std::size_t size) {
  const int fault = guarded([&] { t.bytes(label, at, pages(size)); });
  if (fault != 0) t.line(std::string(label) + ": signal " + std::to_string(fault));
}

// The result of a read at this address in a forked child: the signal that the read raised, 1000 if
// it found the file's bytes, or 1001 if it found other bytes.
void look_in_child(cube::parity::Case& t, const char* at, std::size_t size, char first) {
  std::string wanted = cube::parity::content_of(name_of(size), size);
  wanted[0] = first;
  const pid_t child = fork();
  if (child == 0) {
    int found = 1001;
    const int fault =
        guarded([&] { found = std::memcmp(at, wanted.data(), size) == 0 ? 1000 : 1001; });
    _exit(fault != 0 ? fault : found - 900);
  }
  int status = -1;
  waitpid(child, &status, 0);
  t.line("a child sees " + std::to_string(status));
}

}  // namespace

PARITY(MapAdvice, EveryKindOnANewMapping) {
  for (const std::size_t size : k_sizes) {
    for (const Kind& kind : k_kinds) {
      for (const int advice : k_advice) {
        t.line(name_of(size) + " " + kind.name + " advice " + std::to_string(advice));
        char* const at = mapped(t, size, kind);
        if (at == MAP_FAILED) return;
        if ((kind.protection & PROT_WRITE) != 0) at[0] = 'W';
        CALL(madvise(at, size, advice));
        const char first = at[0];
        if (advice == MADV_WIPEONFORK || advice == MADV_DONTFORK) look_in_child(t, at, size, first);
        look(t, "bytes", at, size);
        CALL(munmap(at, size));
      }
    }
  }
}

PARITY(MapAdvice, ByEachCall) {
  const auto pidfd = static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0));
  for (const std::size_t size : k_sizes) {
    for (const Kind& kind : k_kinds) {
      t.line(name_of(size) + " " + kind.name);
      char* const at = mapped(t, size, kind);
      if (at == MAP_FAILED) return;
      if ((kind.protection & PROT_WRITE) != 0) at[0] = 'W';
      for (const int advice : {POSIX_MADV_NORMAL, POSIX_MADV_RANDOM, POSIX_MADV_SEQUENTIAL,
                               POSIX_MADV_WILLNEED, POSIX_MADV_DONTNEED}) {
        CALL(posix_madvise(at, size, advice));
        look(t, "posix_madvise", at, size);
      }
      struct iovec part {
        at, pages(size)
      };
      for (const int advice : {MADV_COLD, MADV_PAGEOUT, MADV_WILLNEED, MADV_DONTNEED, MADV_FREE}) {
        // Newer kernels accept more advice for the caller's own process, so the comparison runs on
        // the same kernel.
        CALL(syscall(SYS_process_madvise, pidfd, &part, 1UL, static_cast<long>(advice), 0UL));
        look(t, "process_madvise", at, size);
      }
      CALL(syscall(SYS_madvise, at, size, static_cast<long>(MADV_DONTNEED)));
      look(t, "madvise by number", at, size);
      CALL(madvise(at + 1, size, MADV_DONTNEED));
      CALL(munmap(at, size));
    }
  }
  close(pidfd);
}

PARITY(MapAdvice, WrittenPagesGoAndTheFileIsSeenAgain) {
  for (const std::size_t size : k_sizes) {
    char* const at = mapped(t, size, k_kinds[1]);
    if (at == MAP_FAILED) return;
    std::memset(at, 'W', pages(size));
    look(t, "written", at, size);
    CALL(madvise(at, k_page, MADV_DONTNEED));
    look(t, "without the first page", at, size);
    CALL(mprotect(at, size, PROT_READ));
    CALL(madvise(at, size, MADV_DONTNEED));
    look(t, "the file", at, size);
    CALL(mprotect(at, size, PROT_READ | PROT_WRITE));
    at[5] = 'X';
    t.in_child([&] {
      look(t, "in a child", at, size);
      CALL(madvise(at, size, MADV_DONTNEED));
      look(t, "the child's file", at, size);
    });
    look(t, "once more written", at, size);
    CALL(munmap(at, size));
  }
}

PARITY(MapAdvice, ProtectionOfASharedMapping) {
  for (const std::size_t size : k_sizes) {
    char* const at = mapped(t, size, k_kinds[2]);
    if (at == MAP_FAILED) return;
    CALL(mprotect(at, size, PROT_READ | PROT_WRITE));
    EXPECT_EQ(errno, EACCES);
    CALL(mprotect(at, size, PROT_WRITE));
    EXPECT_EQ(errno, EACCES);
    t.line("a write: signal " +
           std::to_string(guarded([&] { *static_cast<volatile char*>(at) = 'x'; })));
    CALL(mprotect(at, size, PROT_NONE));
    look(t, "hidden", at, size);
    CALL(mprotect(at, size, PROT_READ));
    look(t, "again", at, size);
    t.in_child([&] { CALL(mprotect(at, size, PROT_READ | PROT_WRITE)); });
    CALL(munmap(at, size));
  }
}

PARITY(MapAdvice, SyncLockAndResidence) {
  for (const std::size_t size : k_sizes) {
    for (const Kind& kind : k_kinds) {
      char* const at = mapped(t, size, kind);
      if (at == MAP_FAILED) return;
      for (const int flags :
           {MS_SYNC, MS_ASYNC, MS_INVALIDATE, MS_SYNC | MS_INVALIDATE, MS_SYNC | MS_ASYNC, 99}) {
        CALL(msync(at, size, flags));
      }
      CALL(mlock(at, size));
      CALL(msync(at, size, MS_INVALIDATE));
      unsigned char there[32] = {};
      // Pages are certainly present once they are locked.
      CALL(mincore(at, size, there));
      t.bytes("residence", there, sizeof there);
      CALL(mincore(at + 1, size, there));
      CALL(munlock(at, size));
      CALL(mlock2(at, size, MLOCK_ONFAULT));
      CALL(munlock(at, size));
      for (const std::size_t page : {0UL, 1UL, 100UL}) {
        CALL(remap_file_pages(at, k_page, 0, page, 0));
        look(t, "after remap_file_pages", at, size);
      }
      CALL(munmap(at, size));
    }
  }
}

PARITY(MapAdvice, AllIsLocked) {
  for (const int flags : {0, MCL_ONFAULT, MCL_CURRENT | 64, MCL_CURRENT, MCL_CURRENT | MCL_FUTURE,
                          MCL_CURRENT | MCL_ONFAULT}) {
    t.in_child([&] {
      char* const at = mapped(t, k_sizes[0], k_kinds[0]);
      CALL(mlockall(flags));
      CALL(syscall(SYS_mlockall, flags));
      look(t, "locked", at, k_sizes[0]);
      look(t, "mapped later", mapped(t, k_sizes[0], k_kinds[0]), k_sizes[0]);
      CALL(munlockall());
    });
  }
}

PARITY(MapAdvice, ChildrenOfEachForkSeeTheFile) {
  for (const std::size_t size : k_sizes) {
    for (const Kind& kind : k_kinds) {
      char* const at = mapped(t, size, kind);
      if (at == MAP_FAILED) return;
      const std::string wanted = cube::parity::content_of(name_of(size), size);
      for (const int how : {0, 1, 2}) {
        const auto child = how == 0   ? fork()
                           : how == 1 ? _Fork()
                                      : static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
        if (child == 0) {
          const bool gone = madvise(at, size, MADV_DONTNEED) == 0;
          _exit((gone ? 2 : 0) + (std::memcmp(at, wanted.data(), size) == 0 ? 1 : 0));
        }
        int status = -1;
        waitpid(child, &status, 0);
        t.line("a child: " + std::to_string(status));
      }
      CALL(munmap(at, size));
    }
  }
}
