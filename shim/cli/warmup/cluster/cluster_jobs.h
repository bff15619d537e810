// The queue of files that threads send to the servers. It holds waiting files, files to try again
// later, and the results. Thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "prefetch/order/path_source.h"

namespace cube::cli {

struct ClusterJob {
  prefetch::PlannedFile file;
  bool was_taken = false;  // another node had the lease
  unsigned failures = 0;   // failures of the file's server
};

enum class NotShared : std::uint8_t {
  directory,
  missing,
  not_a_file,
  unreadable,
  outside,
  too_large,
  too_large_there,
  restricted,
  young,
  being_written,
  changing,
  no_room,
  no_server
};
struct NotSharedFile {
  prefetch::PlannedFile file;
  NotShared why = NotShared::unreadable;
  int error = 0;
};

class ClusterJobs {
 public:
  using Clock = std::chrono::steady_clock;
  explicit ClusterJobs(std::uint64_t most_memory) : most_memory_(most_memory) {}

  // Returns false if enough files are waiting.
  bool offer(prefetch::PlannedFile& file);
  // Waits for a job. Returns nothing when the work is over. Every job that was taken must end with
  // again() or done().
  std::optional<ClusterJob> take();
  void again(ClusterJob job, std::chrono::milliseconds pause);
  void done() { done({}); }
  void done(std::vector<NotSharedFile> left_out);
  void stop();
  bool is_stopped() const { return is_stopped_.load(std::memory_order_relaxed); }

  std::vector<NotSharedFile> take_left_out();
  // True if every offered file has ended.
  bool is_idle();
  std::uint64_t ended() const { return ended_.load(std::memory_order_relaxed); }
  // Waits until another file has ended, or until the time has passed.
  void wait(std::chrono::milliseconds at_most);

  // Reserves memory for a file before it is read. All threads together exceed the limit by at most
  // one file.
  bool take_memory(std::uint64_t bytes);
  void give_memory(std::uint64_t bytes);

 private:
  static constexpr std::size_t k_most_waiting = 4096;

  const std::uint64_t most_memory_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable work_, news_, memory_;
  std::minstd_rand chance_{std::random_device{}()};
  std::vector<ClusterJob> waiting_;
  std::multimap<Clock::time_point, ClusterJob> later_;
  std::vector<NotSharedFile> left_out_;
  std::uint64_t under_way_ = 0, memory_taken_ = 0;
  std::atomic<std::uint64_t> ended_{0};
  std::atomic<bool> is_stopped_{false};
};

}  // namespace cube::cli
