// Readers that advise the kernel before they read, like pyarrow for each parquet file.
#include <fstream>

#include "tests/support/preload_job.h"

using cube::preload::Job;

namespace {

// The size of a file whose bytes are fetched only as the program reads them.
constexpr std::size_t k_large = 2 << 20;

std::string pattern(std::size_t n) {
  std::string bytes(n, '\0');
  for (std::size_t i = 0; i < n; ++i) bytes[i] = static_cast<char>(i * 31 + i / 4096);
  return bytes;
}

// The bytes that a program expects of the file, in Python.
const std::string k_wanted = "wanted = bytes((i * 31 + i // 4096) & 255 for i in range(2 << 20))\n";

struct LargeFileJob : Job {
  LargeFileJob() {
    env["CUBESHIM_PREFETCH"] = "0";
    std::ofstream(data() + "/large", std::ios::binary) << pattern(k_large);
  }
  void run_well(const std::string& script) const { expect_well(python(k_wanted + script)); }
};

}  // namespace

TEST(Advice, FileFetchedInPartsIsReadOnce) {
  const LargeFileJob job;
  job.run_well(R"(
for epoch in range(2):
  fd = os.open(D + '/large', os.O_RDONLY)
  os.posix_fadvise(fd, 4, len(wanted) - 100, os.POSIX_FADV_WILLNEED)
  assert os.pread(fd, len(wanted), 4) == wanted[4:]
  os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)
  assert os.read(fd, 10) == wanted[:10]
  os.close(fd)
)");
  EXPECT_EQ(job.report("misses"), 1);
  EXPECT_EQ(job.report("hits.ram"), 1);
  EXPECT_EQ(job.report("origin.bytes"), k_large);
  EXPECT_EQ(job.report("materialized"), 0);
}

TEST(Parts, FileIsMappedWhileItIsFetched) {
  const LargeFileJob job;
  job.run_well(R"(
import mmap
for epoch in range(2):
  fd = os.open(D + '/large', os.O_RDONLY)
  assert os.read(fd, 10) == wanted[:10]
  assert mmap.mmap(fd, 0, prot=mmap.PROT_READ)[:] == wanted
  os.close(fd)
)");
  EXPECT_EQ(job.report("hits.ram"), 1);
  EXPECT_EQ(job.report("materialized"), 0);
}

// The same steps as in numpy.load with a mapping: it reads the header through one fd and maps the
// file through another.
TEST(Parts, SecondOpenSharesTheBytesFetchedByTheFirst) {
  const LargeFileJob job;
  job.run_well(R"(
import mmap
first = os.open(D + '/large', os.O_RDONLY)
assert os.read(first, 10) == wanted[:10]
second = os.open(D + '/large', os.O_RDONLY)
third = os.open(D + '/large', os.O_RDONLY)
assert os.read(third, 100) == wanted[:100]
os.close(first)
assert mmap.mmap(second, 0, prot=mmap.PROT_READ)[:] == wanted
assert os.read(third, 2 << 20) == wanted[100:]
os.close(third)
assert os.pread(second, 50, 70) == wanted[70:120]
os.close(second)
)");
  EXPECT_EQ(job.report("misses"), 3);
  EXPECT_EQ(job.report("bypassed.busy"), 0);
  EXPECT_EQ(job.report("origin.bytes"), k_large);
  EXPECT_EQ(job.report("materialized"), 0);
}

TEST(Parts, SecondOpenOfAnotherVersionIsLeftToTheKernel) {
  const LargeFileJob job;
  job.run_well(R"(
import subprocess
without = {name: value for name, value in os.environ.items() if name != 'LD_PRELOAD'}
first = os.open(D + '/large', os.O_RDONLY)
assert os.read(first, 10) == wanted[:10]
replace = 'head -c 2097152 /dev/zero > "$0.new"; mv "$0.new" "$0"'
subprocess.check_call(['sh', '-c', replace, D + '/large'], env=without)
second = os.open(D + '/large', os.O_RDONLY)
assert os.read(second, 2 << 20) == bytes(2 << 20)
assert os.read(first, 2 << 20) == wanted[10:]
)");
}

TEST(Parts, ShortReadMovesTheOffsetByItsBytes) {
  const LargeFileJob job;
  job.run_well(R"(
import subprocess
without = {name: value for name, value in os.environ.items() if name != 'LD_PRELOAD'}
cut = 'read go; truncate -s 1500000 "$0"; echo done'
other = subprocess.Popen(['sh', '-c', cut, D + '/large'], env=without,
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
fd = os.open(D + '/large', os.O_RDONLY)
assert len(os.read(fd, 10)) == 10
os.write(other.stdin.fileno(), b'go\n')
assert os.read(other.stdout.fileno(), 9) == b'done\n'
got = len(os.read(fd, 2 << 20))
assert 0 < got < (2 << 20) - 10, got
assert os.lseek(fd, 0, os.SEEK_CUR) == 10 + got
)");
}
