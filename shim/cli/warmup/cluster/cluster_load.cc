#include "shim/cli/warmup/cluster/cluster_load.h"

#include <algorithm>
#include <thread>

#include "cache/tier/shared/cluster_identity.h"
#include "shim/cli/interrupt.h"
#include "shim/cli/warmup/cluster/cluster_filler.h"

namespace cube::cli {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds k_between_looks(100), k_end_patience(2000), k_step(10);

const char* reason_of(NotShared why) {
  switch (why) {
    case NotShared::outside: return "outside CUBESHIM_PREFIXES, or of a pack";
    case NotShared::too_large: return "larger than CUBESHIM_MAX_FILE";
    case NotShared::too_large_there: return "larger than its server takes (memcached -I)";
    case NotShared::restricted: return "not readable for all users (CUBESHIM_CLUSTER_TRUST)";
    case NotShared::young: return "changed less than 2 s before it was read";
    case NotShared::being_written: return "open for writing on this node";
    case NotShared::changing: return "changed while it was read";
    case NotShared::no_room: return "without room on its server";
    case NotShared::no_server: return "of a server that does not answer";
    default: return "not read";
  }
}

void note(NamedPaths& paths, const NotSharedFile& one, Skipped& skipped) {
  using prefetch::Refusal;
  switch (one.why) {
    case NotShared::directory: return paths.walk(one.file);
    case NotShared::missing: return paths.refuse(Refusal::missing, one.file, 0);
    case NotShared::not_a_file: return paths.refuse(Refusal::not_a_file, one.file, 0);
    case NotShared::unreadable: return paths.refuse(Refusal::unreadable, one.file, one.error);
    default: return skipped.add(reason_of(one.why), one.file.path);
  }
}

Tally tally_of(const ClusterFill& fill, std::uint64_t ended, const Census* census) {
  Tally tally;
  tally.files = ended;
  tally.bytes = fill.shared_bytes;
  if (census == nullptr) return tally;
  tally.total_files = std::max(census->files(), tally.files);
  tally.is_total_final = census->is_over();
  return tally;
}

// The threads of a fill. A thread that hangs at the origin is abandoned.
class FillerThreads {
 public:
  FillerThreads(const std::shared_ptr<ClusterFill>& fill, unsigned count)
      : fill_(fill), alive_(std::make_shared<Alive>(count)) {
    for (unsigned i = 0; i < count; ++i) {
      std::thread([fill, alive = alive_] {
        ClusterFiller(fill).run();
        --*alive;
      }).detach();
    }
  }
  ~FillerThreads() {
    fill_->jobs.stop();
    for (auto waited = milliseconds(0); *alive_ != 0 && waited < k_end_patience; waited += k_step)
      std::this_thread::sleep_for(k_step);
  }
  FillerThreads(const FillerThreads&) = delete;
  FillerThreads& operator=(const FillerThreads&) = delete;

 private:
  using Alive = std::atomic<unsigned>;
  std::shared_ptr<ClusterFill> fill_;
  std::shared_ptr<Alive> alive_;
};

void go_through(NamedPaths& paths, ClusterFill& fill, const Census* census, Skipped& skipped,
                Progress& progress) {
  prefetch::PlannedFile file;
  bool has_file = false;
  std::uint64_t directories = 0;
  while (interrupted_by() == 0) {
    const bool was_idle = fill.jobs.is_idle();
    const auto left_out = fill.jobs.take_left_out();
    for (const NotSharedFile& one : left_out) {
      if (one.why == NotShared::directory) ++directories;
      note(paths, one, skipped);
    }
    bool is_any = false;
    while (interrupted_by() == 0 && (has_file || paths.next(file))) {
      has_file = !fill.jobs.offer(file);
      if (has_file) break;
      is_any = true;
    }
    progress.show(tally_of(fill, fill.jobs.ended() - directories, census));
    if (was_idle && !is_any && !has_file && left_out.empty()) return;
    fill.jobs.wait(was_idle ? milliseconds(0) : k_between_looks);
  }
}

}  // namespace

std::optional<ClusterLoadCounts> load_to_cluster(const base::Config& config, NamedPaths& paths,
                                                 const Census* census, Skipped& skipped,
                                                 Progress& progress, std::string& why) {
  const auto fill = std::make_shared<ClusterFill>(config);
  if (!cache::read_cluster_login(config.cluster_login, fill->login, why)) return std::nullopt;
  {
    const FillerThreads threads(fill, config.prefetch_depth);
    go_through(paths, *fill, census, skipped, progress);
  }
  for (const NotSharedFile& one : fill->jobs.take_left_out()) note(paths, one, skipped);
  return ClusterLoadCounts{.there = fill->there,
                           .by_others = fill->by_others,
                           .read = fill->read,
                           .read_bytes = fill->read_bytes,
                           .shared = fill->shared,
                           .shared_bytes = fill->shared_bytes};
}

}  // namespace cube::cli
