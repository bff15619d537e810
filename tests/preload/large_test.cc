// Files that are larger than CUBESHIM_MAX_FILE and are read in blocks.
#include "tests/support/preload_job.h"

using cube::preload::byte_of;
using cube::preload::Job;

namespace {

// Writes a large file with the bytes of byte_of(number, ...).
std::string write_large(const Job& job, int number, std::size_t size) {
  const std::string path = job.data() + "/large" + std::to_string(number);
  std::string bytes(size, '\0');
  for (std::size_t i = 0; i < size; ++i) bytes[i] = byte_of(number, i);
  EXPECT_TRUE(cube::tests::TempDir::write_file(path, bytes));
  return path;
}

// Reads files of more than 1 MiB in blocks of 4 KiB.
struct BlocksJob : Job {
  BlocksJob() {
    env["CUBESHIM_MAX_FILE"] = "1M";
    env["CUBESHIM_BLOCK"] = "4K";
  }
};

}  // namespace

// Half of the bytes of the read are in memory, and the other half are read through the fd.
TEST(Large, FdReassignedDuringAReadMixesNoBytes) {
  BlocksJob job;
  job.env["CUBESHIM_RAM"] = "8M";
  constexpr std::size_t k_size = 12 << 20;
  expect_well(job.helper(
      {"large-close-race", write_large(job, 0, k_size), write_large(job, 1, k_size), "10000"}));
  EXPECT_GT(job.report("blocks.hits"), 0) << job.report_text();
  EXPECT_GT(job.report("blocks.misses"), 0) << job.report_text();
}

// Every other page is present, so that no mapping of the file is a single mapping of the region.
constexpr const char* k_read_every_other_page = R"(
import ctypes, mmap
libc = ctypes.CDLL(None, use_errno=True)
libc.mremap.restype = libc.mmap.restype = ctypes.c_void_p
libc.mremap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int,
                      ctypes.c_long]
FAILED = ctypes.c_void_p(-1).value
path = D + '/large0'
size = os.path.getsize(path)
fd = os.open(path, os.O_RDONLY)
with open('/proc/self/fd/%d' % fd, 'rb') as kernels: content = kernels.read()
for at in range(0, size, 8192):
  assert os.pread(fd, 10, at) == content[at:at + 10]
)";

TEST(Large, MappingsOfManyPiecesLeaveMappingsToTheProgram) {
  BlocksJob job;
  job.env["CUBESHIM_PREFETCH"] = "0";
  write_large(job, 0, 16 << 20);
  expect_well(job.python(std::string(k_read_every_other_page) + R"(
mappings = [mmap.mmap(fd, size, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE) for i in range(40)]
assert sum(1 for line in open('/proc/self/maps')) < 10000
for mapping in mappings:
  assert mapping[size // 2:size // 2 + 20000] == content[size // 2:size // 2 + 20000]
  mapping.close()
# Their room is free again.
mapping = mmap.mmap(fd, size, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE)
assert sum(1 for line in open('/proc/self/maps')) > 2000
)"));
  EXPECT_GT(job.report("blocks.mapped"), 0) << job.report_text();
}

TEST(Large, AMappingOfSeveralPartsGrows) {
  BlocksJob job;
  job.env["CUBESHIM_PREFETCH"] = "0";
  write_large(job, 0, 4 << 20);
  expect_well(job.python(std::string(k_read_every_other_page) + R"(
half = size // 2
at = libc.mmap(None, half, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
assert at != FAILED and ctypes.string_at(at, half) == content[:half]
# There is no room after it, so it has to move.
flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x100000
assert libc.mmap(at + half, 4096, 0, flags, -1, 0) != None
at = libc.mremap(at, half, size, 1)
assert at != FAILED, os.strerror(ctypes.get_errno())
assert ctypes.string_at(at, size) == content
# All of it from memory, then with more and more of the origin's file after it.
mega = 1 << 20
assert os.pread(fd, mega, 0) == content[:mega]
at = libc.mmap(None, mega, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
assert at != FAILED
for n in (2, 3, 4):
  at = libc.mremap(at, (n - 1) * mega, n * mega, 1)
  assert at != FAILED, os.strerror(ctypes.get_errno())
  assert ctypes.string_at(at, n * mega) == content[:n * mega]
)"));
  EXPECT_GT(job.report("blocks.mapped"), 0) << job.report_text();
}

// The kernel can move and grow only a single mapping.
TEST(Large, PrivateMappingOfSeveralPartsKeepsItsWritesWhenMovedAndGrown) {
  BlocksJob job;
  job.env["CUBESHIM_PREFETCH"] = "0";
  write_large(job, 0, 4 << 20);
  expect_well(job.python(std::string(k_read_every_other_page) + R"(
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.mremap.argtypes += [ctypes.c_void_p]
MAYMOVE, FIXED, NOREPLACE = 1, 2, 0x100000
half, page = size // 2, 4096
def reserve(at, n, flags=0):
  at = libc.mmap(at, n, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | flags, -1, 0)
  assert at != FAILED
  return at
def remap(at, old, new, flags, to=None):
  at = libc.mremap(at, old, new, flags, to)
  assert at != FAILED, os.strerror(ctypes.get_errno())
  return at
room = reserve(None, 4 * size)
libc.munmap(room, 4 * size)
at = libc.mmap(room, half, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | NOREPLACE, fd, 0)
assert at == room and ctypes.string_at(at, half) == content[:half]
expected = bytearray(content)
for n in (0, 1, 100, 101, half // page - 1):  # pages of memory and of the origin's file
  ctypes.memmove(at + n * page, b'written', 7)
  expected[n * page:n * page + 7] = b'written'
# It stays where there is room, and moves where there is none.
assert remap(at, half, half + 5 * page, 0) == at
reserve(at + half + 5 * page, page, NOREPLACE)
assert libc.mremap(at, half + 5 * page, size, 0, None) == FAILED and ctypes.get_errno() == 12
at = remap(at, half + 5 * page, size, MAYMOVE)
assert ctypes.string_at(at, size) == expected
to = reserve(None, size)
assert remap(at, size, size - page, MAYMOVE | FIXED, to) == to
assert ctypes.string_at(to, size - page) == expected[:-page]
with open('/proc/self/maps') as maps:
  assert not any(int(line.split('-')[0], 16) == at for line in maps)
)"));
  EXPECT_GT(job.report("blocks.mapped"), 0) << job.report_text();
}

// In the region, a block is followed by a block from another place or file.
TEST(Large, APageThatGrowsOrIsDuplicatedShowsThePagesBehindItInTheFile) {
  BlocksJob job;
  job.env["CUBESHIM_PREFETCH"] = "0";
  write_large(job, 0, 4 << 20);
  expect_well(job.python(std::string(k_read_every_other_page) + R"(
page = 4096
at = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
assert at != FAILED
twin = libc.mremap(at + 2 * page, 0, 10 * page, 1)
assert twin != FAILED and ctypes.string_at(twin, 10 * page) == content[2 * page:12 * page]
grown = libc.mremap(at + 6 * page, page, 20 * page, 1)
assert grown != FAILED and ctypes.string_at(grown, 20 * page) == content[6 * page:26 * page]
assert ctypes.string_at(at, 6 * page) == content[:6 * page]
assert ctypes.string_at(at + 7 * page, 50 * page) == content[7 * page:57 * page]
)"));
  EXPECT_GT(job.report("blocks.mapped"), 0) << job.report_text();
}

// For a short time, a fetch has an fd of the library and a mapping to read into.
TEST(Large, AHandlerThatLeavesReadsByAJumpLeavesNothingBehind) {
  BlocksJob job;
  expect_well(job.helper({"large-jumps", write_large(job, 0, 32 << 20), "3000"}));
  EXPECT_GT(job.report("blocks.misses"), 0) << job.report_text();
}

// A process has at most 2,048 large files.
TEST(Large, ReadsThatAJumpHasLeftKeepNoFiles) {
  BlocksJob job;
  expect_well(job.helper({"large-left", write_large(job, 0, 2 << 20), "2500"}));
  EXPECT_EQ(job.report("blocks.files"), 2500) << job.report_text();
}

TEST(Large, AChildReturnsIntoTheReadInWhichAHandlerForked) {
  BlocksJob job;
  expect_well(job.helper({"large-fork", write_large(job, 0, 2 << 20)}));
}

// A program without the library truncates the file within the second block of the read.
TEST(Large, ShortReadMovesTheOffsetByItsBytes) {
  Job job;
  job.env["CUBESHIM_MAX_FILE"] = "1M";
  job.env["CUBESHIM_BLOCK"] = "64K";
  write_large(job, 0, 4 << 20);
  expect_well(job.python(R"(
import subprocess
path = D + '/large0'
fd = os.open(path, os.O_RDONLY)
content = os.read(fd, 1000)
subprocess.run(['truncate', '-s', '100000', path], env={'PATH': os.environ['PATH']}, check=True)
for wanted in (1 << 20, 1 << 20):
  part = os.read(fd, wanted)
  content += part
  assert os.lseek(fd, 0, os.SEEK_CUR) == len(content), (os.lseek(fd, 0, os.SEEK_CUR), len(content))
assert len(content) == 100000 and part == b''
subprocess.run(['sh', '-c', 'printf more >> "$1"', 'sh', path], env={'PATH': os.environ['PATH']},
               check=True)
assert os.read(fd, 1 << 20) == b'more'
)"));
  EXPECT_EQ(job.report("blocks.files"), 1) << job.report_text();
}
