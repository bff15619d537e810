#include "cache/tier/cluster/idle_gate.h"

#include <sys/resource.h>

#include <algorithm>

#include "cache/base/clock.h"
#include "cache/base/sys.h"
#include "cache/tier/cluster/helper_thread.h"

namespace cube::cache {
namespace {

// The niceness of the helper thread. When a program ends or calls exec, each of its threads must
// run once more. On a busy node, this took 90 to 260 ms with a niceness of 19, and sometimes 2.6 s;
// with 15, it took 40 ms. With 10, the gate sometimes opens although no processor is idle.
constexpr int k_niceness = 15;
constexpr std::uint64_t k_longest_ns = 20'000'000, k_between_gates_ns = 1'000'000'000;
// If the answer takes longer than k_prompt_ns, the gate stays shut for k_pauses_of_wait times the
// excess.
constexpr std::uint64_t k_prompt_ns = 100'000, k_pauses_of_wait = 64;

}  // namespace

class IdleGate::Desk final : public HelperDesk {
 public:
  using HelperDesk::HelperDesk;
  std::uint64_t asked_ns = 0, answered_ns = 0;  // used by the client's thread, except while the
                                                // helper works

 private:
  void begin() override {
    // The raw call returns 20 minus the niceness. If the program has a higher niceness, keeps it.
    const long now = base::sys::raw(SYS_getpriority, PRIO_PROCESS, 0);
    if (!base::sys::failed(now) && 20 - now < k_niceness)
      base::sys::raw(SYS_setpriority, PRIO_PROCESS, 0, k_niceness);
  }
  void work() override { answered_ns = base::monotonic_ns(); }
};

IdleGate::~IdleGate() {
  if (desk_ != nullptr) desk_->end();
}

void IdleGate::shut(std::uint64_t now_ns) {
  if (desk_ == nullptr && now_ns >= next_start_ns_) {
    next_start_ns_ = now_ns + k_between_gates_ns;
    auto* const desk = new Desk(client_);
    if (desk->start()) desk_ = desk;
  }
  if (desk_ == nullptr) return;
  // If an earlier question is not answered yet, its answer is used.
  if (desk_->is_idle()) {
    desk_->asked_ns = now_ns;
    desk_->ask();
  }
  opens_ns_ = now_ns + k_longest_ns;
}

bool IdleGate::is_open(std::uint64_t now_ns) {
  if (desk_ != nullptr && desk_->is_done()) {
    const std::uint64_t waited = desk_->answered_ns - desk_->asked_ns;
    const std::uint64_t pause =
        waited <= k_prompt_ns ? 0 : (waited - k_prompt_ns) * k_pauses_of_wait;
    opens_ns_ = std::min(opens_ns_, desk_->answered_ns + pause);
    desk_->take();
  }
  return desk_ == nullptr || now_ns >= opens_ns_;
}

}  // namespace cube::cache
