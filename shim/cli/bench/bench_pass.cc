#include "shim/cli/bench/bench_pass.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <thread>

#include "cache/base/clock.h"
#include "cache/base/error_text.h"
#include "shim/cli/interrupt.h"

namespace cube::cli {
namespace {

// The buffer of a worker thread, and its part of the result.
struct BenchWorker {
  std::vector<char> buffer;
  Pass part;

  void fail(const std::string& path, int error) {
    if (part.failed++ == 0) part.first_failure = path + ": " + base::text_of_error(error);
  }
};

using Operation = void (*)(const std::string&, const PassOptions&, BenchWorker&);

// Calls libc's functions by name, so that a preloaded library can answer.
void read_one(const std::string& path, const PassOptions& options, BenchWorker& worker) {
  const std::uint64_t began = base::monotonic_ns();
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return worker.fail(path, errno);
  const std::uint64_t opened = base::monotonic_ns();
  if (options.drop_pages) posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  const std::uint64_t dropped = base::monotonic_ns();
  struct ::stat st {};
  if (::fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) ||
      static_cast<std::uint64_t>(st.st_size) > options.max_file) {
    if (S_ISREG(st.st_mode)) ++worker.part.too_large;
    ::close(fd);
    return;
  }
  const std::uint64_t asked = base::monotonic_ns();
  std::uint64_t bytes = 0;
  ssize_t n = 0;
  while ((n = ::read(fd, worker.buffer.data(), worker.buffer.size())) > 0)
    bytes += static_cast<std::uint64_t>(n);
  const int error = errno;
  const std::uint64_t read = base::monotonic_ns();
  ::close(fd);
  const std::uint64_t closed = base::monotonic_ns();
  if (n < 0) return worker.fail(path, error);
  worker.part.open.add(opened - began);
  worker.part.read.add(read - asked);
  worker.part.whole.add(closed - began - (dropped - opened));
  worker.part.bytes += bytes;
  worker.part.sizes.push_back(bytes);
}

void stat_one(const std::string& path, const PassOptions&, BenchWorker& worker) {
  struct ::stat st {};
  const std::uint64_t began = base::monotonic_ns();
  const int result = ::stat(path.c_str(), &st);
  const std::uint64_t ended = base::monotonic_ns();
  if (result != 0) return worker.fail(path, errno);
  worker.part.whole.add(ended - began);
}

Pass run_pass(std::span<const std::string> paths, const PassOptions& options, Operation operation) {
  Pass pass;
  pass.in_flight = static_cast<unsigned>(std::min<std::size_t>(options.in_flight, paths.size()));
  std::vector<BenchWorker> workers(pass.in_flight);
  if (paths.empty()) pass.in_flight = options.in_flight;
  for (auto& worker : workers) worker.buffer.resize(1 << 20);
  std::atomic<std::size_t> next{0};
  const auto work = [&](BenchWorker& worker) {
    while (interrupted_by() == 0 && base::monotonic_ns() < options.until_ns) {
      const std::size_t i = next.fetch_add(1, std::memory_order_relaxed);
      if (i >= paths.size()) return;
      operation(paths[i], options, worker);
    }
  };
  const std::uint64_t began = base::monotonic_ns();
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 1; i < workers.size(); ++i)
      threads.emplace_back([&, i] { work(workers[i]); });
    if (!workers.empty()) work(workers.front());
  }
  pass.seconds = static_cast<double>(base::monotonic_ns() - began) / 1e9;
  for (const auto& worker : workers) {
    pass.open.take(worker.part.open);
    pass.read.take(worker.part.read);
    pass.whole.take(worker.part.whole);
    pass.sizes.insert(pass.sizes.end(), worker.part.sizes.begin(), worker.part.sizes.end());
    pass.bytes += worker.part.bytes;
    pass.too_large += worker.part.too_large;
    if (pass.failed == 0) pass.first_failure = worker.part.first_failure;
    pass.failed += worker.part.failed;
  }
  return pass;
}

}  // namespace

double Timings::us(double q) const {
  if (all_.empty()) return 0;
  std::vector<std::uint64_t> sorted = all_;
  const auto rank = static_cast<std::size_t>(std::ceil(q * static_cast<double>(sorted.size())));
  const auto at = sorted.begin() + static_cast<long>(std::max<std::size_t>(rank, 1) - 1);
  std::nth_element(sorted.begin(), at, sorted.end());
  return static_cast<double>(*at) / 1000;
}

Pass read_files(std::span<const std::string> paths, const PassOptions& options) {
  return run_pass(paths, options, read_one);
}
Pass stat_files(std::span<const std::string> paths, const PassOptions& options) {
  return run_pass(paths, options, stat_one);
}

}  // namespace cube::cli
