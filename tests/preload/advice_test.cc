// Readers that advise the kernel before they read, as pyarrow does for each parquet file.
#include <fstream>

#include "tests/support/preload_job.h"

using cube::preload::Job;

namespace {

// Its bytes come as the program reads them.
constexpr std::size_t k_large = 2 << 20;

std::string pattern(std::size_t n) {
  std::string bytes(n, '\0');
  for (std::size_t i = 0; i < n; ++i) bytes[i] = static_cast<char>(i * 31 + i / 4096);
  return bytes;
}

}  // namespace

TEST(Advice, AFileThatComesInPartsIsReadOnce) {
  Job job;
  job.env["CUBESHIM_PREFETCH"] = "0";
  std::ofstream(job.data() + "/large", std::ios::binary) << pattern(k_large);
  const auto outcome = job.python(R"(
wanted = bytes((i * 31 + i // 4096) & 255 for i in range(2 << 20))
for epoch in range(2):
  fd = os.open(D + '/large', os.O_RDONLY)
  os.posix_fadvise(fd, 4, len(wanted) - 100, os.POSIX_FADV_WILLNEED)
  assert os.pread(fd, len(wanted), 4) == wanted[4:]
  os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)
  assert os.read(fd, 10) == wanted[:10]
  os.close(fd)
)");
  EXPECT_EQ(outcome.status, 0) << outcome.out << outcome.err;
  EXPECT_EQ(job.report("misses"), 1);
  EXPECT_EQ(job.report("hits.ram"), 1);
  EXPECT_EQ(job.report("origin.bytes"), k_large);
  EXPECT_EQ(job.report("materialized"), 0);
}
