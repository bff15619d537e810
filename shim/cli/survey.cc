#include "shim/cli/survey.h"

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "shim/cli/interrupt.h"

namespace cube::cli {
namespace {

using prefetch::PlannedFile;
using prefetch::Refused;

constexpr unsigned k_threads = 16;

// Null: it is a file that is not cached, of `size` bytes.
struct FileLook {
  bool is_cached = false, is_refused = false;
  std::uint64_t size = 0;
  Refused why = Refused::failed;
  int error = 0;
};

FileLook look_at(const PlannedFile& file, const SurveyPlace& place) {
  if (place.cache != nullptr) {
    const auto pin = place.cache->find({.key = file.path, .path = file.path.c_str()});
    if (pin && place.evict) place.cache->changes().content_changed(file.path, &pin->stat);
    if (pin) return {.is_cached = true, .size = pin->data_size};
  }
  const auto stat = place.origins->of(file.path).stat(file.path, file.path.c_str());
  const auto refuse = [](Refused why, int error = 0) { return FileLook{.is_refused = true, .why = why, .error = error}; };
  if (!stat) {
    const int error = stat.error().value;
    return refuse(error == ENOENT || error == ENOTDIR ? Refused::missing : Refused::failed, error);
  }
  if ((stat->mode & S_IFMT) == S_IFDIR) return refuse(Refused::directory);
  if (!stat->is_regular()) return refuse(Refused::not_a_file);
  if (stat->size > place.max_file) return refuse(Refused::too_large);
  return {.size = stat->size};
}

class Survey {
 public:
  Survey(NamedPaths& paths, const SurveyPlace& place, Skipped& skipped) : paths_(paths), place_(place), skipped_(skipped) {}

  SurveyCounts run(Progress& progress) {
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < k_threads; ++i) threads.emplace_back([this] { work(); });
    {
      std::unique_lock lock(mutex_);
      while (!is_over_) {
        changed_.wait_for(lock, std::chrono::milliseconds(100));
        if (interrupted_by() != 0) is_over_ = true;
        const Tally tally{.files = counts_.cached + counts_.absent, .bytes = counts_.cached_bytes + counts_.absent_bytes};
        lock.unlock();
        progress.show(tally);
        lock.lock();
      }
    }
    changed_.notify_all();
    for (auto& thread : threads) thread.join();
    return counts_;
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (!is_over_) {
      PlannedFile file;
      if (!paths_.next(file)) {
        // A path that another thread looks at now may be a directory, whose files come next.
        is_over_ = looking_ == 0;
        if (!is_over_) changed_.wait(lock);
        continue;
      }
      ++looking_;
      lock.unlock();
      const FileLook look = look_at(file, place_);
      lock.lock();
      --looking_;
      note(file, look);
      changed_.notify_all();
    }
    changed_.notify_all();
  }

  void note(const PlannedFile& file, const FileLook& look) {
    if (look.is_refused) return skipped_.add(paths_, {file, look.why, look.error});
    ++(look.is_cached ? counts_.cached : counts_.absent);
    (look.is_cached ? counts_.cached_bytes : counts_.absent_bytes) += look.size;
  }

  NamedPaths& paths_;
  const SurveyPlace place_;
  Skipped& skipped_;
  std::mutex mutex_;  // guards the rest, the paths and what is skipped
  std::condition_variable changed_;
  SurveyCounts counts_;
  unsigned looking_ = 0;
  bool is_over_ = false;
};

}  // namespace

SurveyCounts survey(NamedPaths& paths, const SurveyPlace& place, Skipped& skipped, Progress& progress) {
  return Survey(paths, place, skipped).run(progress);
}

}  // namespace cube::cli
