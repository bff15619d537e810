// Mappings. They are accessed under a guard, so that a fault is a result like any other.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "cache/base/sys.h"
#include "tests/differential/player.h"
#include "tests/support/guarded.h"

namespace cube::differ {
namespace {

constexpr std::size_t k_page = 4096;

using tests::guarded;

std::size_t up(std::size_t n) { return (n + k_page - 1) / k_page * k_page; }

// Chooses a part of the mapping in whole pages. Returns false if there is no mapping.
bool part_of(const Map& map, const Arguments& a, std::size_t& at, std::size_t& n) {
  if (map.at == nullptr) return false;
  const std::size_t pages = up(map.length) / k_page;
  at = static_cast<std::size_t>(std::max<std::int64_t>(a[1], 0)) / k_page % pages * k_page;
  n = std::clamp<std::size_t>(up(static_cast<std::size_t>(a[2])), k_page, pages * k_page - at);
  return true;
}

}  // namespace

DIFFER_PLAY(mmap) {
  Map& map = p.map(a[0]);
  if (map.at != nullptr) return;
  constexpr int kinds[][2] = {{PROT_READ, MAP_PRIVATE},
                              {PROT_READ, MAP_SHARED},
                              {PROT_READ, MAP_PRIVATE | MAP_POPULATE},
                              {PROT_READ | PROT_WRITE, MAP_PRIVATE},
                              {PROT_READ, MAP_PRIVATE},
                              {PROT_READ | PROT_WRITE, MAP_SHARED},
                              {PROT_READ | PROT_EXEC, MAP_PRIVATE},
                              {PROT_NONE, MAP_PRIVATE}};
  const auto& kind = kinds[a[4] % 8];
  const int fd = p.fd(a[1]);
  const std::int64_t offset = a[2] % 7 == 3 ? a[2] : a[2] / 4096 * 4096;
  const auto length = static_cast<std::size_t>(a[3]);
  errno = k_errno_kept;
  void* const at = mmap(nullptr, length, kind[0], kind[1], fd, offset);
  const Result r{at == MAP_FAILED ? -1 : 0, errno};
  p.say("mmap({}, {}, {}, prot {} flags {:x}) = {}", fd, offset, length, kind[0], kind[1],
        r.text());
  if (r.failed()) return;
  struct ::stat st {};
  fstat(fd, &st);
  p.note_mapped(st.st_ino);
  map = {static_cast<unsigned char*>(at), length, st.st_ino, false};
}

DIFFER_PLAY(map_read) {
  const Map& map = p.map(a[0]);
  std::size_t at = 0, n = 0;
  if (!part_of(map, a, at, n)) return;
  // A mapping need not show a change that was made after it (SEMANTICS, Limits: mappings).
  if (map.spoiled) return;
  std::uint64_t hash = 0;
  std::size_t page = 0;
  const int fault = guarded([&] {
    for (page = at; page < at + n; page += k_page)
      hash = hash * 31 + hash_of(map.at + page, k_page);
  });
  p.say("mapping {} [{}, +{}): signal {} at {} {:016x}", a[0], at, n, fault, page, hash);
}

DIFFER_PLAY(map_write) {
  Map& map = p.map(a[0]);
  Arguments whole = a;
  whole[2] = 1;
  std::size_t at = 0, n = 0;
  if (!part_of(map, whole, at, n) || map.spoiled) return;
  // A store to a shared mapping changes the file itself, and with it the other mappings. A file of
  // a pack never changes.
  for (std::int64_t i = 0; i < 3 && !p.tree().is_packed(); ++i)
    p.map(i).spoiled = p.map(i).spoiled || (&p.map(i) != &map && p.map(i).inode == map.inode);
  const int fault = guarded([&] { map.at[at + 10] = static_cast<unsigned char>(a[1]); });
  p.say("mapping {} written at {}: signal {}", a[0], at, fault);
}

DIFFER_PLAY(munmap) {
  Map& map = p.map(a[0]);
  std::size_t at = 0, n = 0;
  if (!part_of(map, a, at, n)) return;
  if (a[1] % 2 == 0) at = 0, n = map.length;
  p.say("munmap {} [{}, +{}) = {}", a[0], at, n,
        p.call([&] { return munmap(map.at + at, n); }).text());
  if (n == map.length) {
    map = Map();
  } else {
    // Reserves the hole, so that nothing else is mapped into it.
    base::sys::mmap(map.at + at, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  }
}

DIFFER_PLAY(mprotect) {
  const Map& map = p.map(a[0]);
  constexpr int protections[] = {PROT_READ,
                                 PROT_READ | PROT_WRITE,
                                 PROT_NONE,
                                 PROT_READ,
                                 PROT_READ | PROT_WRITE,
                                 PROT_READ,
                                 64,
                                 PROT_READ};
  std::size_t at = 0, n = 0;
  if (!part_of(map, a, at, n)) return;
  const int protection = protections[a[3] % 8];
  const Result r = p.call([&] { return mprotect(map.at + at, n, protection); });
  p.say("mprotect {} [{}, +{}) {} = {}", a[0], at, n, protection, r.text());
}

// Shrinks a mapping, or keeps its size. (Growing a mapping fails: SEMANTICS.)
DIFFER_PLAY(mremap) {
  Map& map = p.map(a[0]);
  if (map.at == nullptr) return;
  const std::size_t length =
      std::clamp<std::size_t>(static_cast<std::size_t>(a[1]), 1, up(map.length));
  errno = k_errno_kept;
  void* const at = mremap(map.at, map.length, length, a[2] % 2 == 0 ? 0 : MREMAP_MAYMOVE);
  const Result r{at == MAP_FAILED ? -1 : 0, errno};
  p.say("mremap {} from {} to {} = {}", a[0], map.length, length, r.text());
  if (r.failed()) return;
  map.at = static_cast<unsigned char*>(at);
  map.length = length;
}

DIFFER_PLAY(madvise) {
  const Map& map = p.map(a[0]);
  if (map.at == nullptr) return;
  constexpr int advices[] = {MADV_WILLNEED, MADV_SEQUENTIAL, MADV_DONTNEED, MADV_RANDOM};
  const int advice = advices[a[1] % 4];
  p.say("madvise {} {} = {}", a[0], advice,
        p.call([&] { return madvise(map.at, map.length, advice); }).text());
}

}  // namespace cube::differ
