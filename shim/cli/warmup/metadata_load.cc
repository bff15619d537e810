#include "shim/cli/warmup/metadata_load.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>
#include <mutex>
#include <thread>

#include "cache/base/error_text.h"
#include "cache/metadata/stat_gather.h"
#include "shim/cli/interrupt.h"
#include "shim/cli/warmup/work_together.h"

namespace cube::cli {
namespace {

constexpr std::chrono::milliseconds k_longest_gather{2000}, k_between_gathers{5};

struct FoundMetadata {
  bool is_listed = false;  // the listing is in the cache
  int error = 0;           // the errno of a directory that cannot be read
  std::uint64_t names = 0, stats = 0;
  std::uint64_t bytes = 0;               // the room that the listing would need
  std::vector<std::string> directories;  // paths
};

bool is_directory(int at, const char* name, unsigned char type) {
  if (type != DT_UNKNOWN) return type == DT_DIR;
  struct ::stat st {};
  return fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

std::string path_below(const std::string& directory, std::string_view name) {
  std::string path = directory;
  if (path != "/") path += '/';
  return path.append(name);
}

// Lists a directory whose listing the cache does not keep, because its subdirectories must still be
// loaded.
FoundMetadata read_uncached(const std::string& directory) {
  FoundMetadata found;
  DIR* const stream = opendir(directory.c_str());
  if (stream == nullptr) {
    found.error = errno;
    return found;
  }
  errno = 0;
  std::uint32_t count = 0;
  while (const dirent* const entry = readdir(stream)) {
    ++count;
    found.bytes += entry->d_reclen;
    const std::string_view name = entry->d_name;
    if (name != "." && name != ".." && is_directory(dirfd(stream), entry->d_name, entry->d_type))
      found.directories.push_back(path_below(directory, name));
    errno = 0;
  }
  found.error = errno;
  found.bytes = cache::DirectoryData::bytes_for(count, found.bytes);
  closedir(stream);
  return found;
}

FoundMetadata read_names(cache::MountMetadata& names, const std::string& directory) {
  const cache::Pin listing = names.listing_of(directory, directory.c_str());
  const auto data = listing ? cache::DirectoryData::of(*listing) : std::nullopt;
  if (!data) return read_uncached(directory);
  FoundMetadata found;
  found.is_listed = true;
  cache::DirectoryData::Entry entry;
  for (cache::DirectoryData::Reader reader(data->entries()); reader.next(entry);) {
    if (entry.is_dots()) continue;
    ++found.names;
    std::string path = path_below(directory, entry.name);
    if (is_directory(AT_FDCWD, path.c_str(), entry.type))
      found.directories.push_back(std::move(path));
  }
  return found;
}

class MetadataLoad {
 public:
  MetadataLoad(cache::MountMetadata& names, const MetadataToLoad& wanted)
      : names_(names), with_stats_(wanted.with_stats), waiting_(wanted.roots) {}

  LoadedMetadata run(Progress& progress) {
    work_together(
        shared_, progress, [this] { work(); }, [this] { return Tally{.files = loaded_.names}; });
    return std::move(loaded_);
  }

 private:
  struct Gather {
    std::string directory;
    std::shared_ptr<cache::StatGather> stats;
    std::uint64_t names = 0;
  };

  void work() {
    std::unique_lock lock(shared_.mutex);
    while (!shared_.is_over) {
      if (!gathers_.empty()) {
        const Gather gather = gathers_.back();
        std::uint64_t stats = 0;
        run_unlocked(lock, [&] { stats = ask_for_stats(gather); });
        loaded_.stats += stats;
        std::erase_if(gathers_, [&](const Gather& other) { return other.stats == gather.stats; });
      } else if (!waiting_.empty()) {
        // Visits the directory that was found last, so that few directories wait.
        const std::string directory = std::move(waiting_.back());
        waiting_.pop_back();
        visit(directory, lock);
      } else if (under_way_ == 0) {
        shared_.is_over = true;
      } else {
        shared_.changed.wait(lock);
      }
    }
    shared_.changed.notify_all();
  }

  template <typename Work>
  void run_unlocked(std::unique_lock<std::mutex>& lock, Work&& work) {
    ++under_way_;
    lock.unlock();
    work();
    lock.lock();
    --under_way_;
    shared_.changed.notify_all();
  }

  void visit(const std::string& directory, std::unique_lock<std::mutex>& lock) {
    FoundMetadata found;
    std::shared_ptr<cache::StatGather> gather;
    run_unlocked(lock, [&] {
      found = read_names(names_, directory);
      if (!found.is_listed || !with_stats_) return;
      gather = begin_gather(directory, found);
    });
    if (!found.is_listed) skip(directory, found);
    loaded_.directories += found.is_listed ? 1 : 0;
    loaded_.names += found.names;
    loaded_.stats += found.stats;
    std::ranges::move(found.directories, std::back_inserter(waiting_));
    if (gather != nullptr) gathers_.push_back({directory, std::move(gather), found.names});
    shared_.changed.notify_all();
  }

  // Begins to gather the stats of a directory. If a job is gathering these stats, waits for some
  // time. Returns null if another process has gathered the stats.
  std::shared_ptr<cache::StatGather> begin_gather(const std::string& directory,
                                                  FoundMetadata& found) {
    const auto until = std::chrono::steady_clock::now() + k_longest_gather;
    while (true) {
      std::shared_ptr<cache::StatGather> gather =
          cache::StatGather::begin(names_, directory, {}, UINT32_MAX);
      if (gather != nullptr) return gather;
      found.stats = cache::StatGather::count_known(names_, directory);
      if (are_nearly_all(found.stats, found.names) || interrupted_by() != 0 ||
          std::chrono::steady_clock::now() >= until)
        return nullptr;
      std::this_thread::sleep_for(k_between_gathers);
    }
  }

  static bool are_nearly_all(std::uint64_t stats, std::uint64_t names) {
    return stats + names / 8 >= names;
  }

  void take_part(cache::StatGather& gather) {
    const base::UniqueFd directory = gather.open();
    while (interrupted_by() == 0 && gather.step(directory.get())) {
    }
  }

  // Takes part in a gather. In the last thread that takes part, returns how many stats are valid;
  // in all others, returns 0.
  std::uint64_t ask_for_stats(const Gather& gather) {
    take_part(*gather.stats);
    if (!gather.stats->is_just_over()) return 0;
    FoundMetadata found;
    found.names = gather.names;
    found.stats = cache::StatGather::count_known(names_, gather.directory);
    if (are_nearly_all(found.stats, found.names)) return found.stats;
    // If a job has listed the directory again during the gather, the stats are outdated, so gather
    // them again.
    if (const auto again = begin_gather(gather.directory, found); again != nullptr) {
      take_part(*again);
      found.stats = cache::StatGather::count_known(names_, gather.directory);
    }
    return found.stats;
  }

  void skip(const std::string& directory, const FoundMetadata& found) {
    const int error = found.error;
    SkippedRow row;
    row.count = 1;
    row.first = directory;
    if (error == 0 && access(directory.c_str(), X_OK) != 0) {
      row.reason = "not searchable";
    } else if (error == 0) {
      row.reason = names_.has_room_for(found.bytes) ? "changed less than two seconds before"
                                                    : "beyond CUBESHIM_METADATA_RAM";
    } else {
      row.reason = error == ENOENT || error == ENOTDIR ? "missing" : "unreadable";
      row.first += ": " + std::string(base::text_of_error(error));
    }
    add_row(loaded_.skipped, std::move(row));
  }

  cache::MountMetadata& names_;
  const bool with_stats_;
  SharedWork shared_;                 // guards the members below
  std::vector<std::string> waiting_;  // directories
  std::vector<Gather> gathers_;       // gathers with entries whose stats were not requested yet
  LoadedMetadata loaded_;
  unsigned under_way_ = 0;
};

}  // namespace

LoadedMetadata load_metadata(cache::FileCache& cache, const MetadataToLoad& wanted,
                             Progress& progress) {
  return MetadataLoad(cache.metadata(), wanted).run(progress);
}

}  // namespace cube::cli
