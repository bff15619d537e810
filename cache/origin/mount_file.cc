#include "cache/origin/mount_file.h"

#include <atomic>
#include <cerrno>

#include "cache/base/readahead.h"
#include "cache/base/whole_read.h"
#include "cache/origin/kept_attributes.h"

namespace cube::cache {

namespace sys = base::sys;
using base::Counter;

namespace {

// Makes the kernel request all parts of a file in parallel. Does nothing for a file on a block
// device (whose major number is not 0), because the kernel's own readahead is enough there.
void ask_for_all(int fd, const FileStat& stat) {
  if (stat.size <= base::k_one_readahead || stat.device_major != 0) return;
  if (base::keeps_pages(fd)) base::ask_for_pages(fd, 0, stat.size);
}

void count(base::Stats* stats, Counter counter, std::uint64_t n = 1) {
  if (stats != nullptr) stats->count(counter, n);
}

}  // namespace

base::Result<MountFile> MountFile::open(const char* path, int flags, base::Stats* stats) {
  count(stats, Counter::origin_opens);
  // Asks before the open, because the open fills the kernel's cache. Does not ask if the last file
  // was local: this file is probably local, too, and then the answer does not matter.
  static constinit std::atomic<bool> last_was_local{false};
  const bool may_be_kept =
      last_was_local.load(std::memory_order_relaxed) || may_keep_attributes(path);
  MountFile file;
  const long fd = open_noting_links(path, flags, file.links_);
  if (sys::failed(fd)) return base::fail(static_cast<int>(-fd));
  file.fd_ = Fd(static_cast<int>(fd));
  count(stats, Counter::origin_stats);
  // The server must report the size, because with a smaller cached size the kernel would cut off
  // newer bytes.
  const bool is_servers_word = !may_be_kept && file.links_ == LinksOnWay::none;
  const auto stat = stat_fd(file.fd_.get(), is_servers_word ? 0 : k_ask_server);
  if (stat) last_was_local.store(stat->device_major != 0, std::memory_order_relaxed);
  if (stat) file.stat_ = *stat;
  if (!stat && stat.error().value == EINTR)
    return base::fail(EINTR);  // see DemandOpen::fetch_opened
  return file;
}

base::Result<void> MountFile::read_whole(std::byte* to, base::Stats* stats) const {
  ask_for_all(fd_.get(), stat_);
  base::WholeRead read(to, stat_.size);
  while (true) {
    count(stats, Counter::origin_reads);
    const long n = sys::raw(SYS_preadv, fd_.get(), sys::arg(read.aim()), read.k_parts,
                            static_cast<long>(read.got()));
    if (!fd_.is_own()) return base::fail(EINTR);
    if (sys::failed(n)) return base::fail(static_cast<int>(-n));
    count(stats, Counter::origin_bytes, static_cast<std::uint64_t>(n));
    switch (read.after(n)) {
      case base::ReadState::whole: return {};
      case base::ReadState::changed: return base::fail(ESTALE);
      case base::ReadState::more: break;
    }
  }
}

bool MountFile::is_unchanged(base::Stats* stats) const {
  count(stats, Counter::origin_stats);
  const auto now = stat_fd(fd_.get(), k_ask_server);
  return now && fd_.is_own() && now->is_unchanged_since(stat_);
}

bool MountFile::is_physical(std::string_view absolute_path) const {
  return links_ == LinksOnWay::unknown ? has_path(fd_.get(), absolute_path)
                                       : links_ == LinksOnWay::none;
}

}  // namespace cube::cache
