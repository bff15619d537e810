#include "cache/tier/shared/cluster_path_rights.h"

#include <sys/stat.h>

#include <utility>

#include "cache/base/clock.h"
#include "cache/base/sys.h"
#include "cache/tier/cluster/helper_thread.h"

namespace cube::cache {

namespace sys = base::sys;

namespace {

constexpr std::uint64_t k_holds_ns = 60'000 * base::k_ns_per_ms,
                        k_is_long_ns = 1'000 * base::k_ns_per_ms,
                        k_between_starts_ns = 1'000 * base::k_ns_per_ms;
// More directories than any path contains.
constexpr std::size_t k_most_known = 4096;

}  // namespace

class ClusterPathRights::Desk final : public HelperDesk {
 public:
  using HelperDesk::HelperDesk;
  // Used by the client's thread, except while the checking thread works.
  std::string path;
  bool is_open = false;

 private:
  void work() override {
    struct ::stat st {};
    is_open =
        !sys::failed(sys::fstatat(AT_FDCWD, path.c_str(), &st, 0)) && (st.st_mode & S_IXOTH) != 0;
  }
};

void ClusterPathRights::ask(std::string_view directory, std::uint64_t now_ns) {
  if (desk_ == nullptr) {
    if (now_ns < next_start_ns_) return;
    next_start_ns_ = now_ns + k_between_starts_ns;
    auto* const desk = new Desk(client_.wakeup());
    if (!desk->start()) return;
    desk_ = desk;
  }
  if (!desk_->is_idle()) return;
  desk_->path = directory;
  asked_ns_ = now_ns;
  desk_->ask();
}

void ClusterPathRights::collect(std::uint64_t now_ns) {
  if (desk_ == nullptr || !desk_->is_done()) return;
  if (known_.size() >= k_most_known) known_.clear();
  known_[desk_->path] = {.until_ns = now_ns + k_holds_ns, .is_open = desk_->is_open};
  desk_->take();
}

ClusterPathRights::Access ClusterPathRights::access_to(std::string_view directory,
                                                       std::uint64_t now_ns) {
  collect(now_ns);
  for (; !directory.empty() && directory.front() == '/';
       directory = directory.substr(0, directory.rfind('/'))) {
    const auto known = known_.find(directory);
    if (known == known_.end() || now_ns >= known->second.until_ns) {
      ask(directory, now_ns);
      return Access::unknown;
    }
    if (!known->second.is_open) return Access::some;
  }
  return Access::all;
}

bool ClusterPathRights::is_stuck(std::uint64_t now_ns) const {
  if (desk_ == nullptr) return true;
  return desk_->is_asked() && now_ns - asked_ns_ >= k_is_long_ns;
}

void ClusterPathRights::end() {
  if (Desk* const desk = std::exchange(desk_, nullptr); desk != nullptr) desk->end();
}

}  // namespace cube::cache
