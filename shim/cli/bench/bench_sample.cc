#include "shim/cli/bench/bench_sample.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <deque>
#include <iterator>
#include <random>
#include <thread>

#include "cache/base/clock.h"
#include "cache/base/error_text.h"
#include "shim/cli/interrupt.h"

namespace cube::cli {
namespace {

unsigned char type_of(const dirent& entry, const std::string& path) {
  struct ::stat st {};
  if (entry.d_type != DT_UNKNOWN || ::lstat(path.c_str(), &st) != 0) return entry.d_type;
  return S_ISREG(st.st_mode) ? DT_REG : S_ISDIR(st.st_mode) ? DT_DIR : DT_LNK;
}

// The listing of one directory, which one thread makes.
struct BenchListing {
  std::vector<std::string> files, below;
  std::uint64_t ns = 0;
  bool is_cut = false;
  int error = 0;
};

BenchListing list_for_bench(const std::string& directory, std::size_t most,
                            std::uint64_t until_ns) {
  BenchListing listing;
  const std::uint64_t began = base::monotonic_ns();
  DIR* const stream = ::opendir(directory.c_str());
  if (stream == nullptr) {
    listing.error = errno;
    return listing;
  }
  const auto is_over = [&] {
    return listing.files.size() >= most || base::monotonic_ns() >= until_ns ||
           interrupted_by() != 0;
  };
  while (const dirent* const entry = ::readdir(stream)) {
    const std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    if ((listing.is_cut = is_over())) break;
    std::string path = directory;
    if (path != "/") path += '/';
    path += name;
    const unsigned char type = type_of(*entry, path);
    if (type == DT_REG) {
      listing.files.push_back(std::move(path));
    } else if (type == DT_DIR) {
      listing.below.push_back(std::move(path));
    }
  }
  ::closedir(stream);
  listing.ns = base::monotonic_ns() - began;
  return listing;
}

class BenchWalk {
 public:
  BenchWalk(const SampleLimits& limits, BenchSample& sample) : limits_(limits), sample_(sample) {}

  void run(const std::string& root) {
    waiting_.push_back(root);
    while (!waiting_.empty() && files_.size() < limits_.listed &&
           base::monotonic_ns() < limits_.until_ns && interrupted_by() == 0) {
      // If there are enough directories, some are listed many at a time, and all others one at a
      // time. No directory is listed twice.
      const bool is_many = waiting_.size() >= 2 * limits_.in_flight &&
                           sample_.list_many.whole.count() < k_many_listings;
      list(is_many ? std::min(waiting_.size() / 2, k_many_listings) : 1,
           is_many ? sample_.list_many : sample_.list_one);
    }
    sample_.is_whole = waiting_.empty() && !is_cut_;
    choose();
  }

 private:
  static constexpr std::size_t k_many_listings = 256;

  void list(std::size_t count, Pass& pass) {
    std::vector<std::string> directories(waiting_.begin(),
                                         waiting_.begin() + static_cast<long>(count));
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<long>(count));
    std::vector<BenchListing> listings(count);
    std::atomic<std::size_t> next{0};
    const auto work = [&] {
      for (std::size_t i = 0; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;)
        listings[i] = list_for_bench(directories[i], limits_.listed, limits_.until_ns);
    };
    const std::uint64_t began = base::monotonic_ns();
    {
      std::vector<std::jthread> threads;
      for (unsigned i = 1; i < std::min<std::size_t>(pass.in_flight, count); ++i)
        threads.emplace_back(work);
      work();
    }
    pass.seconds += static_cast<double>(base::monotonic_ns() - began) / 1e9;
    for (std::size_t i = 0; i < count; ++i) take(directories[i], std::move(listings[i]), pass);
  }

  void take(const std::string& directory, BenchListing&& listing, Pass& pass) {
    if (listing.error != 0) {
      if (pass.failed++ == 0)
        pass.first_failure = directory + ": " + base::text_of_error(listing.error);
      return;
    }
    // The time of an incomplete listing does not count.
    if (!listing.is_cut) pass.whole.add(listing.ns);
    is_cut_ |= listing.is_cut;
    std::move(listing.files.begin(), listing.files.end(), std::back_inserter(files_));
    std::move(listing.below.begin(), listing.below.end(), std::back_inserter(waiting_));
  }

  void choose() {
    sample_.files_seen = files_.size();
    // A constant seed, so that each run chooses the same files.
    std::mt19937_64 random(
        1);  // NOLINT(bugprone-random-generator-seed,cert-msc32-c,cert-msc51-cpp)
    std::shuffle(files_.begin(), files_.end(), random);
    files_.resize(std::min(files_.size(), limits_.files));
    sample_.files = std::move(files_);
  }

  const SampleLimits limits_;
  BenchSample& sample_;
  std::deque<std::string> waiting_;
  std::vector<std::string> files_;
  bool is_cut_ = false;
};

}  // namespace

BenchSample take_bench_sample(const std::string& directory, const SampleLimits& limits) {
  BenchSample sample;
  sample.list_one.in_flight = 1;
  sample.list_many.in_flight = limits.in_flight;
  BenchWalk(limits, sample).run(directory);
  return sample;
}

}  // namespace cube::cli
