#include "prefetch/threads/thread_crew.h"

#include <cerrno>

#include "cache/base/error_text.h"
#include "prefetch/threads/background_thread.h"
#include "prefetch/threads/starter_traits.h"

namespace cube::prefetch {

using base::LogLevel;

void ThreadCrew::let_go() {
  if (users_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
}

void ThreadCrew::run(void* of) {
  auto& crew = *static_cast<ThreadCrew*>(of);
  const Kind& kind = crew.kind_;
  const unsigned number = crew.begun_.fetch_add(1, std::memory_order_relaxed);
  int error = 0;
  if (number == 0 || !kind.shares_table) {
    if (const auto table = take_private_fd_table(); !table)
      crew.table_error_.store(error = table.error().value, std::memory_order_relaxed);
    crew.with_hosts_table_.fetch_sub(1, std::memory_order_release);
    crew.changed_.notify();
    // A thread that shares the table was started by a thread whose priority was already lowered.
    lower_priority(kind.nice);
  }
  try {
    error == 0 ? crew.work(number) : crew.work_without_table(error);
  } catch (...) {
    if (kind.without != nullptr) base::log(LogLevel::warn, "{}: no memory", kind.without);
  }
  crew.threads_.fetch_sub(1, std::memory_order_release);
  crew.changed_.notify();
  crew.let_go();
}

int ThreadCrew::start_thread(bool may_change) {
  const unsigned takes_table =
      !kind_.shares_table || begun_.load(std::memory_order_relaxed) == 0 ? 1 : 0;
  users_.fetch_add(1, std::memory_order_relaxed);
  threads_.fetch_add(1, std::memory_order_relaxed);
  with_hosts_table_.fetch_add(takes_table, std::memory_order_relaxed);
  const int error = start_background_thread(run, this, kind_.stack, may_change);
  if (error == 0) return 0;
  with_hosts_table_.fetch_sub(takes_table, std::memory_order_relaxed);
  threads_.fetch_sub(1, std::memory_order_relaxed);
  users_.fetch_sub(1, std::memory_order_relaxed);
  return error;
}

bool ThreadCrew::start_threads(unsigned most) {
  const bool may_change = may_change_traits();
  for (unsigned i = 0; i < most; ++i) {
    const int error = start_thread(may_change);
    if (error == 0) continue;
    const unsigned others = threads_.load(std::memory_order_relaxed);
    if (others == 0) tell("no thread", error);
    if (others != 0)
      base::log(LogLevel::info, "{} by more than {} threads: {}", kind_.without, others,
                base::text_of_error(error));
    return others != 0;
  }
  return true;
}

int ThreadCrew::wait_for_tables(std::uint64_t at_most_ns) {
  changed_.wait_until([this] { return with_hosts_table_.load(std::memory_order_acquire) == 0; },
                      at_most_ns);
  return table_error_.load(std::memory_order_relaxed);
}

void ThreadCrew::tell(const char* call, int error) {
  // Forked children meet the same error, but the warning is needed only one time.
  static constinit std::atomic<bool> has_warned{false};
  LogLevel level = is_told_.exchange(true) ? LogLevel::debug : kind_.level;
  // EINVAL: after unshare(CLONE_NEWPID), a process can have children but no threads.
  if (level == LogLevel::warn && (error == EINVAL || has_warned.exchange(true)))
    level = LogLevel::info;
  base::log(level, "{}: {}: {}", kind_.without, call, base::text_of_error(error));
}

}  // namespace cube::prefetch
