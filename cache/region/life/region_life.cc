// Region: how processes join and leave a region, and how the region's name is removed.
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>

#include "cache/base/clock.h"
#include "cache/base/error_text.h"
#include "cache/base/file_io.h"
#include "cache/region/lanes.h"
#include "cache/region/life/ended_views.h"
#include "cache/region/life/life_lock.h"
#include "cache/region/life/process_reaper.h"
#include "cache/region/life/process_slots.h"
#include "cache/region/life/robust_lock.h"
#include "cache/region/region.h"

namespace cube::cache {
namespace {

namespace sys = base::sys;

// A region or a socket that is younger than this belongs to its creator, even if no process holds a
// lock on it.
constexpr std::uint64_t k_young_ns = 60'000'000'000;

bool is_own_socket(const std::string& path, struct ::stat& st) {
  return !sys::failed(sys::fstatat(AT_FDCWD, path.c_str(), &st, AT_SYMLINK_NOFOLLOW)) &&
         S_ISSOCK(st.st_mode) && st.st_uid == sys::geteuid();
}

// Whether the socket is old. The creator of an old socket is either listening by now, or dead.
bool is_old(const struct ::stat& st) {
  const std::uint64_t made_ns = static_cast<std::uint64_t>(st.st_mtim.tv_sec) * 1'000'000'000ULL +
                                static_cast<std::uint64_t>(st.st_mtim.tv_nsec);
  return base::wall_ns() - made_ns >= k_young_ns;
}

// Whether jobs have used the region, and all of them are over. The process that creates a region
// begins a job when it joins the region.
bool has_only_dead_jobs(const Region& region) {
  bool has_jobs = false;
  for (std::uint32_t i = 0; i < region.layout().job_rows; ++i) {
    const base::ProcessId& leader = region.job_row(i).leader;
    if (leader.pid == 0) continue;
    if (base::liveness_of(leader) != base::Liveness::dead) return false;
    has_jobs = true;
  }
  return has_jobs;
}

bool is_old_socket(const std::string& path) {
  struct ::stat st {};
  return is_own_socket(path, st) && is_old(st);
}

// Removes a socket that a dead leader has left. Does nothing if a process listens on the socket, or
// if a new leader has replaced the file.
void remove_dead_socket(const std::string& path) {
  sockaddr_un address{};
  struct ::stat before {
  }, now{};
  if (path.size() >= sizeof address.sun_path || !is_own_socket(path, before)) return;
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, path.size());
  const long fd = sys::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (sys::failed(fd)) return;
  const base::UniqueFd client(static_cast<int>(fd));
  if (sys::connect(client.get(), &address, sizeof address) != -ECONNREFUSED ||
      !is_own_socket(path, now))
    return;
  // Before a new leader listens, its socket refuses connections, too. So only an old socket is
  // removed.
  if (is_old(now) && now.st_dev == before.st_dev && now.st_ino == before.st_ino)
    sys::unlink(path.c_str());
}

}  // namespace

std::uint32_t Region::count_processes() const { return count_processes(reopen(O_RDONLY)); }

std::uint32_t Region::count_processes(base::Result<base::UniqueFd> fd) const {
  const LifeProbe probe(std::move(fd));
  std::uint32_t living = 0;
  for (std::uint32_t i = 0; i < slots_reached(*this); ++i) {
    const ProcessSlot& slot = process_slot(i);
    if (slot.used.load(std::memory_order_acquire) != 0 && probe.is_held(i)) ++living;
  }
  return living;
}

void Region::reap() {
  const RobustLock lock(&header().lifecycle);
  if (lock) reap_dead_processes(*this, own_slot_);
}

bool Region::retire_if_left() {
  const bool is_young = base::wall_ns() - header().created_ns < k_young_ns;
  return (!is_young || has_only_dead_jobs(*this)) && retire_if_unused();
}

bool Region::retire_if_unused() {
  if (header().kept.load(std::memory_order_relaxed) != 0 ||
      LifeProbe(reopen(O_RDONLY)).is_held(0, layout_.process_slots))
    return false;
  const RobustLock lock(&header().lifecycle, 100);
  if (!lock || reap_dead_processes(*this, k_nobody, true) != 0 || report_is_due(*this, {}))
    return false;
  header().dead.store(1, std::memory_order_relaxed);
  // No process listens on the socket: only processes that use the region do so, and the next region
  // cannot exist before this name is removed.
  struct ::stat st {};
  if (const std::string socket = socket_path_of(path_); is_own_socket(socket, st))
    sys::unlink(socket.c_str());
  remove_name();
  return true;
}

base::Result<void> Region::retire() {
  const RobustLock lock(&header().lifecycle);
  if (!lock) return base::fail(EBUSY);
  header().dead.store(1, std::memory_order_relaxed);
  remove_name();
  if (is_named()) return base::fail(EPERM);
  return {};
}

Region::Joined Region::join(const RegionOptions& options, std::string& why) {
  // Determines the identity of the process only when there is a region to join, because a program
  // that reads no covered file may call attach() only at its exit.
  const base::ProcessId self = base::current_process();
  const std::uint64_t command = base::hash_of_own_command();
  const base::View view =
      options.view.number != base::View::k_free ? options.view : base::current_view();
  const RobustLock lock(&header().lifecycle);
  if (!lock) {
    why = fmt::format("{} is held by a stopped process", path_);
    return Joined::no;
  }
  // `left_over`: the last processes of the region were killed, and no setting keeps the region. If
  // `dead` is set, the region has ended, but its last process may have died before removing the
  // name.
  const bool unused =
      options.create && reap_dead_processes(*this, k_nobody) == 0 && !report_is_due(*this, {});
  const bool left_over =
      unused && !options.keep && header().records.load(std::memory_order_relaxed) != 0;
  // Clears the requests of an earlier job.
  if (unused) header().threads_wanted.store(0, std::memory_order_relaxed);
  if (header().dead.load(std::memory_order_relaxed) != 0 || left_over) {
    header().dead.store(1, std::memory_order_relaxed);
    remove_name();
    return Joined::gone;
  }
  auto claim = claim_process_slot(*this, self, options.job,
                                  options.create ? SlotFor::program : SlotFor::server);
  if (!claim) {
    // ESTALE: another process has removed the name.
    if (claim.error().value == ESTALE) return Joined::gone;
    why = why_not_claimed(claim.error().value);
    // This process has created the region for itself. No other process uses it.
    if (unused && !options.keep && header().records.load(std::memory_order_relaxed) == 0) {
      header().dead.store(1, std::memory_order_relaxed);
      remove_name();
    }
    return Joined::no;
  }
  own_slot_ = claim->slot;
  own_lanes_ = &lane_row(own_slot_, 0);
  own_lanes_reached_ = &own_process().lanes_reached;
  own_job_ = claim->job;
  own_view_ = claim_view(view);
  if (own_view_ == 0) own_view_ = take_ended_view(view);
  if (own_view_ == 0) {
    release_process_slot(*this, own_slot_);
    why = fmt::format(
        "{} is used from {} mount namespaces or sets of permissions, and takes no more: set "
        "another CUBESHIM_NAME",
        path_, k_views);
    return Joined::no;
  }
  own_rights_ = view.rights;
  own_process().view.store(own_view_, std::memory_order_relaxed);
  own_process().command.store(command, std::memory_order_relaxed);
  life_ = std::move(claim->life);
  began_job_ = claim->is_new_job;
  if (options.keep) header().kept.store(1, std::memory_order_relaxed);
  return Joined::yes;
}

std::string Region::why_not_claimed(int error) const {
  switch (error) {
    case EUSERS:
      return fmt::format("all {} process slots of {} are taken: set another CUBESHIM_NAME",
                         layout_.process_slots, path_);
    case EDQUOT:
      return fmt::format(
          "{} is used by {} jobs (processes that were started independently of each other), and "
          "takes no more: set "
          "another CUBESHIM_NAME",
          path_, layout_.job_rows);
    case EINVAL:
    case EPERM:
    case EACCES:
    case ENOSYS:
      return "a sandbox refuses locks of open files (F_OFD_SETLK), which show whether a process is "
             "alive";
    default:
      return fmt::format("cannot take a process slot of {}: {}", path_, base::text_of_error(error));
  }
}

std::uint32_t Region::claim_view(const base::View& view) {
  for (std::uint32_t i = 0; i < k_views; ++i) {
    std::uint64_t& known = header().views[i];
    // If the kernel reuses the ids of an ended view, this view can have the number of the ended
    // view.
    if (known == view.number && !view.is_lasting &&
        (living_views(*this, LeftViews::have_ended) >> i & 1) == 0)
      known = base::View::k_ended;
    if (known == base::View::k_free) known = view.number;
    if (known == view.number) return 1U << i;
  }
  return 0;
}

std::uint32_t Region::take_ended_view(const base::View& view) {
  const std::uint32_t ended = ~living_views(*this, LeftViews::may_be_filled);
  if (ended == 0 || !forget_views(*this, ended)) return 0;
  for (std::uint32_t i = 0; i < k_views; ++i) {
    if ((ended >> i & 1) != 0) header().views[i] = base::View::k_free;
  }
  return claim_view(view);
}

bool Region::is_named() const {
  struct ::stat st {};
  return !sys::failed(sys::fstatat(AT_FDCWD, path_.c_str(), &st, AT_SYMLINK_NOFOLLOW)) &&
         st.st_dev == device_ && st.st_ino == inode_;
}

void Region::remove_name() {
  // Checks is_named(), because the name may belong to another region by now.
  if (is_named()) sys::unlink(path_.c_str());
}

void Region::detach() {
  const RobustLock lock(&header().lifecycle);
  if (!lock) return;
  JobRow& job = job_row(own_job_);
  if (job.leader == process_slot(own_slot_).process)
    job.reported.store(1, std::memory_order_relaxed);
  const std::uint32_t others = reap_dead_processes(*this, own_slot_);
  const bool last = others == 0 && !report_is_due(*this, process_slot(own_slot_).process);
  if (last && !keep_) {
    // A program's mapping of the region remains valid without the name.
    header().dead.store(1, std::memory_order_relaxed);
    remove_name();
  }
  // If this process has pins, it keeps its slot. The slot is reaped when the kernel has freed the
  // memory of this process.
  if (pins_of(*this, own_slot_) != 0) return;
  release_process_slot(*this, own_slot_);
  life_.reset();
}

void Region::sweep_name(RegionOptions& options, std::string_view name) {
  options.name = name;
  std::string why;
  // A name with this suffix can also be the name of a region.
  const std::string path = path_of(options.directory, options.name);
  const bool is_socket = name.ends_with(k_socket_suffix) && is_old_socket(path);
  if (is_socket) options.name.resize(name.size() - k_socket_suffix.size());
  const auto found = look(options, why);
  const std::unique_ptr<Region> region(found ? *found : nullptr);
  if (!is_socket) {
    if (region != nullptr) region->retire_if_left();
    return;
  }
  // Does not test the socket while a process uses the region. A leader may be listening, and a
  // connection would disturb the leader. The next leader replaces a dead socket anyway.
  const bool is_left =
      region != nullptr ? region->count_processes() == 0 : found.error().value == ENOENT;
  if (is_left) remove_dead_socket(path);
}

void Region::sweep_regions(const std::string& directory) {
  constexpr std::size_t k_block = 16 << 10;
  const auto fd = base::open_fd(directory.c_str(), O_RDONLY | O_DIRECTORY);
  const std::unique_ptr<std::byte[]> block(new (std::nothrow) std::byte[k_block]);
  if (!fd || block == nullptr) return;
  const std::string prefix = fmt::format("cubeshim-{}-", sys::geteuid());
  RegionOptions options{.directory = directory, .job = {}};
  static_cast<void>(base::visit_entries(fd->get(), {block.get(), k_block},
                                        [&](const base::DirectoryEntry& entry) {
                                          const std::string_view name = entry.c_str();
                                          if (name.starts_with(prefix))
                                            sweep_name(options, name.substr(prefix.size()));
                                        }));
}

}  // namespace cube::cache
