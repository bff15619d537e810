// Reading and positions.
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>

#include "tests/differential/player.h"

namespace cube::differ {
namespace {

std::size_t length(std::int64_t n) {
  return static_cast<std::size_t>(std::clamp<std::int64_t>(n, 0, 1 << 20));
}

// A buffer in three parts. The middle part has no bytes, and is null for some kinds.
struct Parts {
  Parts(std::size_t first, std::size_t second, std::int64_t kind)
      : buffer(first + second), count(3) {
    v[0] = {buffer.data(), first};
    v[1] = {kind % 2 == 0 ? buffer.data() + first : nullptr, 0};
    v[2] = {buffer.data() + first, second};
    if (kind == 5) count = 0;
    if (kind == 6) count = 1;
    if (kind == 7) count = -1;
  }
  Buffer buffer;
  int count;
  iovec v[3]{};
};

void raw_or_plain_read(Player& p, const Arguments& a, bool raw) {
  const int fd = p.fd(a[0]);
  const std::size_t n = length(a[1]);
  Buffer to(n);
  p.rewind_packed_directory(fd);
  const Result r =
      p.call([&] { return raw ? syscall(SYS_read, fd, to.data(), n) : read(fd, to.data(), n); });
  p.say("{}read({}, {}) = {} {}", raw ? "syscall " : "", fd, n, r.text(), to.text(r.value));
}

void raw_or_plain_lseek(Player& p, const Arguments& a, bool raw) {
  const int fd = p.fd(a[0]), whence = static_cast<int>(a[2] % 6);
  // Positions in a directory belong to the file system.
  if (p.is_packed_directory(fd) && (a[1] != 0 || whence != SEEK_SET)) return;
  // A copy has no holes (SEMANTICS, Packs).
  if (p.tree().is_packed() && whence > SEEK_END) return;
  const Result r =
      p.call([&] { return raw ? syscall(SYS_lseek, fd, a[1], whence) : lseek(fd, a[1], whence); });
  p.say("{}lseek({}, {}, {}) = {}", raw ? "syscall " : "", fd, a[1], whence, r.text());
}

}  // namespace

DIFFER_PLAY(read) { raw_or_plain_read(p, a, false); }
DIFFER_PLAY(raw_read) { raw_or_plain_read(p, a, true); }
DIFFER_PLAY(lseek) { raw_or_plain_lseek(p, a, false); }
DIFFER_PLAY(raw_lseek) { raw_or_plain_lseek(p, a, true); }

DIFFER_PLAY(pread) {
  const int fd = p.fd(a[0]);
  const std::size_t n = length(a[1]);
  Buffer to(n);
  const Result r = p.call([&] { return pread(fd, to.data(), n, a[2]); });
  p.say("pread({}, {}, {}) = {} {}", fd, n, a[2], r.text(), to.text(r.value));
}

DIFFER_PLAY(readv) {
  Parts to(length(a[1]), length(a[2]), a[3]);
  p.rewind_packed_directory(p.fd(a[0]));
  const Result r = p.call([&] { return readv(p.fd(a[0]), to.v, to.count); });
  p.say("readv({}, {}+{} in {}) = {} {}", p.fd(a[0]), a[1], a[2], to.count, r.text(),
        to.buffer.text(r.value));
}

DIFFER_PLAY(preadv) {
  Parts to(length(a[1]), length(a[2]), a[4]);
  const Result r = p.call([&] { return preadv(p.fd(a[0]), to.v, to.count, a[3]); });
  p.say("preadv({}, {}+{} in {}, {}) = {} {}", p.fd(a[0]), a[1], a[2], to.count, a[3], r.text(),
        to.buffer.text(r.value));
}

DIFFER_PLAY(preadv2) {
  Parts to(length(a[1]), length(a[2]), 0);
  // RWF_NOWAIT is left out, because its result depends on the kernel's page cache.
  constexpr int flags[] = {0, 0, 0, RWF_HIPRI, RWF_DSYNC, RWF_APPEND, 1 << 30, 0};
  const int flag = flags[a[4] % 8];
  const off_t at = a[3] % 3 == 0 ? -1 : a[3];
  p.rewind_packed_directory(p.fd(a[0]));
  const Result r = p.call([&] { return preadv2(p.fd(a[0]), to.v, to.count, at, flag); });
  p.say("preadv2({}, {}+{}, {}, {}) = {} {}", p.fd(a[0]), a[1], a[2], at, flag, r.text(),
        to.buffer.text(r.value));
}

DIFFER_PLAY(read_null) {
  const int fd = p.fd(a[0]);
  const std::size_t n = length(a[1]);
  // The buffer is null or beyond the user's half of the address space. (Any other unmapped buffer
  // faults: SEMANTICS.)
  void* const to = a[2] % 2 == 0 ? nullptr : reinterpret_cast<void*>(0xffff'8000'0000'0000ULL);
  p.rewind_packed_directory(fd);
  const Result r = p.call([&] { return a[2] % 4 < 2 ? read(fd, to, n) : pread(fd, to, n, a[2]); });
  p.say("read({}, bad {}, {}) = {}", fd, a[2] % 4, n, r.text());
}

DIFFER_PLAY(read_all) {
  const int fd = p.fd(a[0]);
  const std::size_t n = std::max<std::size_t>(length(a[1]), 512);
  std::uint64_t hash = 0;
  std::size_t calls = 0, total = 0;
  Result r;
  p.rewind_packed_directory(fd);
  for (; calls < 2000; ++calls) {
    Buffer to(n);
    r = p.call([&] { return read(fd, to.data(), n); });
    if (r.value <= 0) break;
    total += static_cast<std::size_t>(r.value);
    hash = hash * 31 + hash_of(to.data(), static_cast<std::size_t>(r.value));
  }
  p.say("read({}, {}) to the end: {} calls, {} bytes, {:016x}, then {}", fd, n, calls, total, hash,
        r.text());
}

DIFFER_PLAY(advise) {
  const int fd = p.fd(a[0]);
  const auto n = static_cast<off_t>(a[3]);
  const Result r = p.call([&] {
    return a[1] == 7 ? static_cast<long>(readahead(fd, a[2], static_cast<std::size_t>(n)))
                     : static_cast<long>(posix_fadvise(fd, a[2], n, static_cast<int>(a[1])));
  });
  p.say("{}({}, {}, {}, {}) = {}", a[1] == 7 ? "readahead" : "posix_fadvise", fd, a[2], n, a[1],
        r.text());
}

}  // namespace cube::differ
