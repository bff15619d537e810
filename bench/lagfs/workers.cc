#include "workers.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <thread>
#include <vector>

#include "latency.h"

namespace cube::lagfs {
namespace {

constexpr int k_nudge_signal = SIGUSR2;
constexpr Nanoseconds k_nudge_interval = 50'000;

sigset_t only(int signal) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal);
  return set;
}

}  // namespace

thread_local Workers::Worker* Workers::current_ = nullptr;

int Workers::end_signal() { return SIGRTMIN; }

void Workers::start(fuse_session* session, unsigned count) {
  session_ = session;
  count_ = count;
  workers_ = std::make_unique<Worker[]>(count);

  // Without SA_RESTART, so that the nudge makes the read of the fuse device return.
  struct sigaction action {};
  action.sa_handler = [](int) {};
  sigaction(k_nudge_signal, &action, nullptr);
  // Blocks the nudge except while receiving, so that it does not interrupt an fallocate or a sleep.
  const sigset_t nudge = only(k_nudge_signal);
  pthread_sigmask(SIG_BLOCK, &nudge, nullptr);

  for (unsigned i = 0; i < count; ++i) {
    Worker& worker = workers_[i];
    std::thread([this, &worker] { run(worker); }).detach();
  }
}

void Workers::run(Worker& self) {
  current_ = &self;
  // Set here and not in start(), because the first workers serve, and can settle, before the last
  // workers are created.
  self.thread = pthread_self();
  const sigset_t nudge = only(k_nudge_signal);
  fuse_buf buffer{};
  while (!fuse_session_exited(session_)) {
    // The seq_cst stores pair with the loads in settle(). The state is stored first, so that a
    // thread that sees a new turn knows that the old turn is over.
    self.state.store(State::receiving);
    self.turn.fetch_add(1);
    pthread_sigmask(SIG_UNBLOCK, &nudge, nullptr);
    const int received = fuse_session_receive_buf(session_, &buffer);
    pthread_sigmask(SIG_BLOCK, &nudge, nullptr);
    if (received == -EINTR || received == -EAGAIN) continue;
    if (received <= 0) break;
    self.state.store(State::handling);
    fuse_session_process_buf(session_, &buffer);
  }
  self.state.store(State::counted);
  free(buffer.mem);
  if (!ended_.exchange(true)) kill(getpid(), end_signal());
}

void Workers::mark_counted() { current_->state.store(State::counted); }

void Workers::settle() {
  // Marks our own request first, so that two workers that settle at the same time do not wait for
  // each other.
  mark_counted();

  // The kernel hands out requests in order, and has already handed out our own. So each earlier
  // request is in the current turn of some worker. That request has been counted if the worker's
  // state is `counted`, or if the worker has begun its next turn.
  struct Watched {
    Worker* worker;
    std::uint64_t turn;
  };
  std::vector<Watched> watched;
  watched.reserve(count_);
  for (unsigned i = 0; i < count_; ++i) {
    if (&workers_[i] != current_) watched.push_back({&workers_[i], workers_[i].turn.load()});
  }
  while (true) {
    std::erase_if(watched, [](const Watched& w) {
      return w.worker->turn.load() != w.turn || w.worker->state.load() == State::counted;
    });
    if (watched.empty()) return;
    // Nudges repeatedly, because a nudge that arrives just before the worker enters the kernel is
    // lost.
    for (const Watched& w : watched) {
      if (w.worker->state.load() == State::receiving)
        pthread_kill(w.worker->thread, k_nudge_signal);
    }
    sleep_until(now_ns() + k_nudge_interval);
  }
}

}  // namespace cube::lagfs
