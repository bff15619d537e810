#include "cache/tier/shared/cluster_path_rights.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <climits>
#include <utility>

#include "cache/base/clock.h"
#include "cache/base/process/proc_fd_name.h"
#include "cache/base/sys.h"
#include "cache/base/unique_fd.h"
#include "cache/tier/cluster/helper_thread.h"

namespace cube::cache {

namespace sys = base::sys;

namespace {

constexpr std::uint64_t k_holds_ns = 60'000 * base::k_ns_per_ms,
                        k_is_long_ns = 1'000 * base::k_ns_per_ms,
                        k_between_starts_ns = 1'000 * base::k_ns_per_ms;
constexpr std::size_t k_most_known = 4096;

bool may_be_searched(const char* path) {
  struct ::stat st {};
  return !sys::failed(sys::fstatat(AT_FDCWD, path, &st, 0)) &&
         (!S_ISDIR(st.st_mode) || (st.st_mode & S_IXOTH) != 0);
}

}  // namespace

bool can_be_reached_by_all(const char* path) {
  const base::UniqueFd fd(static_cast<int>(sys::open(path, O_PATH | O_CLOEXEC)));
  if (!fd) return false;
  std::string real(PATH_MAX, '\0');
  const base::ProcFdName name(fd.get(), base::ProcFdName::Table::thread);
  const long n = sys::readlink(name.c_str(), real.data(), real.size());
  if (sys::failed(n) || real.front() != '/') return false;
  for (real.resize(static_cast<std::size_t>(n)); !real.empty(); real.resize(real.rfind('/'))) {
    if (!may_be_searched(real.c_str())) return false;
  }
  return true;
}

class ClusterPathRights::Desk final : public HelperDesk {
 public:
  using HelperDesk::HelperDesk;
  // Used by the client's thread, except while the checking thread works.
  std::string path;
  bool is_open = false;

 private:
  void work() override { is_open = can_be_reached_by_all(path.c_str()); }
};

void ClusterPathRights::ask(std::string_view path, std::uint64_t now_ns) {
  if (desk_ == nullptr) {
    if (now_ns < next_start_ns_) return;
    next_start_ns_ = now_ns + k_between_starts_ns;
    auto* const desk = new Desk(client_.wakeup());
    if (!desk->start()) return;
    desk_ = desk;
  }
  if (!desk_->is_idle()) return;
  desk_->path = path;
  asked_ns_ = now_ns;
  desk_->ask();
}

void ClusterPathRights::collect(std::uint64_t now_ns) {
  if (desk_ == nullptr || !desk_->is_done()) return;
  if (known_.size() >= k_most_known) known_.clear();
  known_[desk_->path] = {.until_ns = now_ns + k_holds_ns, .is_open = desk_->is_open};
  desk_->take();
}

ClusterPathRights::Access ClusterPathRights::access_to(std::string_view path,
                                                       std::uint64_t now_ns) {
  collect(now_ns);
  const auto known = known_.find(path);
  if (known == known_.end() || now_ns >= known->second.until_ns) {
    ask(path, now_ns);
    return Access::unknown;
  }
  return known->second.is_open ? Access::all : Access::some;
}

bool ClusterPathRights::is_stuck(std::uint64_t now_ns) const {
  if (desk_ == nullptr) return true;
  return desk_->is_asked() && now_ns - asked_ns_ >= k_is_long_ns;
}

void ClusterPathRights::end() {
  if (Desk* const desk = std::exchange(desk_, nullptr); desk != nullptr) desk->end();
}

}  // namespace cube::cache
