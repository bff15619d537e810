#include "shim/cli/warmup/cluster/cluster_jobs.h"

namespace cube::cli {

bool ClusterJobs::offer(prefetch::PlannedFile& file) {
  const std::lock_guard lock(mutex_);
  if (waiting_.size() >= k_most_waiting) return false;
  waiting_.push_back({.file = std::move(file)});
  work_.notify_one();
  return true;
}

std::optional<ClusterJob> ClusterJobs::take() {
  std::unique_lock lock(mutex_);
  while (!is_stopped()) {
    const auto now = Clock::now();
    std::optional<ClusterJob> job;
    if (!waiting_.empty()) {
      // The order is random, because nodes with the same list would otherwise compete for each
      // file.
      std::swap(waiting_[chance_() % waiting_.size()], waiting_.back());
      job = std::move(waiting_.back());
      waiting_.pop_back();
    } else if (!later_.empty() && later_.begin()->first <= now) {
      job = std::move(later_.begin()->second);
      later_.erase(later_.begin());
    }
    if (job) {
      ++under_way_;
      return job;
    }
    if (later_.empty()) {
      work_.wait(lock);
    } else {
      work_.wait_until(lock, later_.begin()->first);
    }
  }
  return std::nullopt;
}

void ClusterJobs::again(ClusterJob job, std::chrono::milliseconds pause) {
  const std::lock_guard lock(mutex_);
  --under_way_;
  later_.emplace(Clock::now() + pause, std::move(job));
  work_.notify_one();
}

void ClusterJobs::done(std::vector<NotSharedFile> left_out) {
  const std::lock_guard lock(mutex_);
  --under_way_;
  ended_.fetch_add(1, std::memory_order_relaxed);
  for (NotSharedFile& one : left_out) left_out_.push_back(std::move(one));
  news_.notify_one();
}

void ClusterJobs::stop() {
  const std::lock_guard lock(mutex_);
  is_stopped_.store(true, std::memory_order_relaxed);
  work_.notify_all();
  memory_.notify_all();
}

std::vector<NotSharedFile> ClusterJobs::take_left_out() {
  const std::lock_guard lock(mutex_);
  return std::exchange(left_out_, {});
}

bool ClusterJobs::is_idle() {
  const std::lock_guard lock(mutex_);
  return waiting_.empty() && later_.empty() && under_way_ == 0;
}

void ClusterJobs::wait(std::chrono::milliseconds at_most) {
  std::unique_lock lock(mutex_);
  news_.wait_for(lock, at_most);
}

bool ClusterJobs::take_memory(std::uint64_t bytes) {
  std::unique_lock lock(mutex_);
  memory_.wait(lock, [&] {
    return is_stopped() || memory_taken_ == 0 || memory_taken_ + bytes <= most_memory_;
  });
  if (is_stopped()) return false;
  memory_taken_ += bytes;
  return true;
}

void ClusterJobs::give_memory(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  memory_taken_ -= bytes;
  memory_.notify_all();
}

}  // namespace cube::cli
