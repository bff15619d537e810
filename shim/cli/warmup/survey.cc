#include "shim/cli/warmup/survey.h"

#include <algorithm>
#include <cerrno>
#include <mutex>

#include "shim/cli/warmup/work_together.h"

namespace cube::cli {
namespace {

using prefetch::PlannedFile;
using prefetch::Refused;

// The result for one file: `present` of `size` bytes are cached.
struct FileLook {
  bool is_refused = false;
  std::uint64_t size = 0, present = 0;
  Refused why = Refused::failed;
  int error = 0;
};

FileLook refuse(Refused why, int error = 0) {
  return {.is_refused = true, .why = why, .error = error};
}

// Looks up the wanted part of a file that is served in blocks.
FileLook look_at_large(const std::string& path, const prefetch::ByteRange& range,
                       const cache::FileStat& stat, const SurveyPlace& place) {
  if (range.begin >= stat.size) return refuse(Refused::bad_range);
  const cache::LargeFile::Range wanted{range.begin, std::min(range.end, stat.size)};
  FileLook look{.size = wanted.end - wanted.begin};
  if (place.cache == nullptr) return look;
  look.present = place.cache->large().present_bytes(path, stat, wanted);
  if (place.evict && look.present != 0) place.cache->large().forget(path, stat, wanted);
  return look;
}

FileLook look_at(const PlannedFile& file, const SurveyPlace& place) {
  if (place.cache != nullptr) {
    const auto pin = place.cache->find({.key = file.path, .path = file.path.c_str()});
    if (pin && place.evict) place.cache->changes().content_changed(file.path, &pin->stat);
    if (pin) return {.size = pin->data_size, .present = pin->data_size};
  }
  const cache::Origin& origin = place.origins->of(file.path);
  const auto stat = origin.stat(file.path, file.path.c_str());
  const bool may_be_large = place.serves_large && !origin.traits().is_whole_in_one_read;
  if (!stat) {
    const int error = stat.error().value;
    const bool is_missing = error == ENOENT || error == ENOTDIR;
    const auto named = prefetch::named_range(file.path);
    if ((is_missing || error == ENAMETOOLONG) && named.kind == prefetch::NamedRange::Kind::wrong)
      return refuse(Refused::bad_range);
    if ((is_missing || error == ENAMETOOLONG) && named.kind == prefetch::NamedRange::Kind::good &&
        file.range.is_all() && may_be_large) {
      PlannedFile whole{.path = std::string(named.path)};
      whole.range = named.range;
      return look_at(whole, place);
    }
    return refuse(is_missing ? Refused::missing : Refused::failed, error);
  }
  if ((stat->mode & S_IFMT) == S_IFDIR) return refuse(Refused::directory);
  if (!stat->is_regular()) return refuse(Refused::not_a_file);
  if (stat->size <= place.max_file) return {.size = stat->size};
  return may_be_large ? look_at_large(file.path, file.range, *stat, place)
                      : refuse(Refused::too_large);
}

class Survey {
 public:
  Survey(NamedPaths& paths, const SurveyPlace& place, Skipped& skipped)
      : paths_(paths), place_(place), skipped_(skipped) {}

  SurveyCounts run(Progress& progress) {
    work_together(
        shared_, progress, [this] { work(); },
        [this] {
          return Tally{.files = counts_.cached + counts_.absent,
                       .bytes = counts_.cached_bytes + counts_.absent_bytes};
        });
    return counts_;
  }

 private:
  void work() {
    std::unique_lock lock(shared_.mutex);
    while (!shared_.is_over) {
      PlannedFile file;
      if (!paths_.next(file)) {
        // The work is not over while another thread checks a path, because the path may be a
        // directory, whose files follow.
        shared_.is_over = looking_ == 0;
        if (!shared_.is_over) shared_.changed.wait(lock);
        continue;
      }
      ++looking_;
      lock.unlock();
      const FileLook look = look_at(file, place_);
      lock.lock();
      --looking_;
      note(file, look);
      shared_.changed.notify_all();
    }
    shared_.changed.notify_all();
  }

  void note(const PlannedFile& file, const FileLook& look) {
    if (look.is_refused) return skipped_.add(paths_, {file, look.why, look.error});
    // A large file may be partly cached.
    ++(look.present == look.size || (place_.evict && look.present != 0) ? counts_.cached
                                                                        : counts_.absent);
    counts_.cached_bytes += look.present;
    counts_.absent_bytes += look.size - look.present;
  }

  NamedPaths& paths_;
  const SurveyPlace place_;
  Skipped& skipped_;
  SharedWork shared_;  // guards the members below, the paths and the skipped files
  SurveyCounts counts_;
  unsigned looking_ = 0;
};

}  // namespace

SurveyCounts survey(NamedPaths& paths, const SurveyPlace& place, Skipped& skipped,
                    Progress& progress) {
  return Survey(paths, place, skipped).run(progress);
}

}  // namespace cube::cli
