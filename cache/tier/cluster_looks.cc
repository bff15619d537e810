#include "cache/tier/cluster_looks.h"

#include <sys/stat.h>

#include <new>

#include "cache/base/clock.h"
#include "cache/base/sys.h"

namespace cube::cache {

namespace sys = base::sys;

namespace {

constexpr std::uint64_t k_holds_ns = 60'000 * base::k_ns_per_ms, k_is_long_ns = 1'000 * base::k_ns_per_ms,
                        k_between_starts_ns = 1'000 * base::k_ns_per_ms;
// More than a path has directories.
constexpr std::size_t k_most_known = 4096;

}  // namespace

constinit std::atomic<StartLookThread> g_start_look_thread{nullptr};

struct ClusterLooks::Desk {
  enum State : std::uint32_t { idle, asked, done, over };
  explicit Desk(ClusterClient& of) : client(of) {}
  // A futex. The path is the client's thread's but while it is asked, is_open too.
  std::atomic<std::uint32_t> state{idle};
  std::atomic<int> users{2};
  ClusterClient& client;
  std::string path;
  bool is_open = false;
};

void ClusterLooks::let_go(Desk* desk) {
  if (desk->users.fetch_sub(1, std::memory_order_acq_rel) == 1) delete desk;
}

// The body of the thread.
void ClusterLooks::look(void* of) {
  auto* const desk = static_cast<Desk*>(of);
  while (true) {
    const std::uint32_t state = desk->state.load(std::memory_order_acquire);
    if (state == Desk::over) break;
    if (state != Desk::asked) {
      sys::futex_wait(&desk->state, state, nullptr);
      continue;
    }
    struct ::stat st {};
    desk->is_open = !sys::failed(sys::fstatat(AT_FDCWD, desk->path.c_str(), &st, 0)) && (st.st_mode & S_IXOTH) != 0;
    std::uint32_t asked = Desk::asked;
    if (desk->state.compare_exchange_strong(asked, Desk::done, std::memory_order_acq_rel)) desk->client.wake();
  }
  let_go(desk);
}

void ClusterLooks::ask(std::string_view directory, std::uint64_t now_ns) {
  if (desk_ == nullptr) {
    const StartLookThread start = g_start_look_thread.load(std::memory_order_acquire);
    if (start == nullptr || now_ns < next_start_ns_) return;
    next_start_ns_ = now_ns + k_between_starts_ns;
    desk_ = new Desk(client_);
    if (!start(look, desk_)) {
      delete std::exchange(desk_, nullptr);
      return;
    }
  }
  if (desk_->state.load(std::memory_order_acquire) != Desk::idle) return;
  desk_->path = directory;
  asked_ns_ = now_ns;
  desk_->state.store(Desk::asked, std::memory_order_release);
  sys::futex_wake_all(&desk_->state);
}

void ClusterLooks::collect(std::uint64_t now_ns) {
  if (desk_ == nullptr || desk_->state.load(std::memory_order_acquire) != Desk::done) return;
  if (known_.size() >= k_most_known) known_.clear();
  known_[desk_->path] = {.until_ns = now_ns + k_holds_ns, .is_open = desk_->is_open};
  desk_->state.store(Desk::idle, std::memory_order_relaxed);
}

ClusterLooks::Access ClusterLooks::access_to(std::string_view directory, std::uint64_t now_ns) {
  collect(now_ns);
  for (; !directory.empty() && directory.front() == '/'; directory = directory.substr(0, directory.rfind('/'))) {
    const auto known = known_.find(directory);
    if (known == known_.end() || now_ns >= known->second.until_ns) {
      ask(directory, now_ns);
      return Access::unknown;
    }
    if (!known->second.is_open) return Access::some;
  }
  return Access::all;
}

bool ClusterLooks::is_stuck(std::uint64_t now_ns) const {
  if (desk_ == nullptr) return true;
  return desk_->state.load(std::memory_order_relaxed) == Desk::asked && now_ns - asked_ns_ >= k_is_long_ns;
}

void ClusterLooks::end() {
  Desk* const desk = std::exchange(desk_, nullptr);
  if (desk == nullptr) return;
  desk->state.store(Desk::over, std::memory_order_release);
  sys::futex_wake_all(&desk->state);
  let_go(desk);
}

}  // namespace cube::cache
