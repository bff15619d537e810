#include "shim/cli/plan/observed.h"

#include <algorithm>
#include <map>

#include "shim/cli/profile/profile_sites.h"

namespace cube::cli {
namespace {

namespace recorded = shim::profile;
using Files = std::map<std::uint64_t, ObservedFile>;  // the key is the hash of the path

void add_use(ObservedFile& file, const RawUse& use) {
  const bool is_first = file.at(recorded::k_file_opens) == 0;
  for (std::size_t i = 0; i < use.counts.size(); ++i) {
    std::uint64_t& sum = file.counts[i];
    const std::uint64_t value = use.counts[i];
    if (i == recorded::k_first_ns) {
      sum = is_first ? value : std::min(sum, value);
    } else if (i == recorded::k_last_ns || i == recorded::k_file_size) {
      sum = std::max(sum, value);
    } else {
      sum += value;
    }
  }
}

// Returns the time that a process spent reading: the time from its first call to the end of its
// last call, or the sum of the times of all calls if that is more (several threads).
double reading_ns(const RawSection& section, double all_opens) {
  ObservedFile sum;
  for (const RawUse& use : section.files) add_use(sum, use);
  constexpr double k_least_part = 0.01;  // a process that reads only labels is not a reader
  if (sum.number(recorded::k_file_opens) < k_least_part * all_opens) return 0;
  return std::max(sum.number(recorded::k_last_ns) - sum.number(recorded::k_first_ns), sum.all_ns());
}

void note_sites(const std::vector<RawFile>& files, Observed& observed) {
  std::size_t paths = 0, letters = 0;
  for (const RawFile& file : files) {
    for (const RawSection& section : file.sections) {
      for (const RawSite& site : section.sites) {
        const std::string_view kind = recorded::k_kind_names[site.kind];
        observed.lists = observed.lists || kind == "list";
        if (kind != "open" || site.example.empty()) continue;
        ++paths;
        letters += site.example.size();
      }
    }
  }
  if (paths != 0) observed.path_length = static_cast<double>(letters) / static_cast<double>(paths);
}

// Estimates the number of epochs: the mean number of opens per file. A file that is opened very
// often, such as an index, counts at most twice the median.
double epochs_of(const std::vector<ObservedFile>& files) {
  std::vector<double> opens(files.size());
  std::transform(files.begin(), files.end(), opens.begin(),
                 [](const ObservedFile& file) { return file.first_opens(); });
  const auto middle = opens.begin() + static_cast<std::ptrdiff_t>(opens.size() / 2);
  std::nth_element(opens.begin(), middle, opens.end());
  const double most = 2 * *middle;
  double sum = 0;
  for (const double n : opens) sum += std::min(n, most);
  return std::max(sum / static_cast<double>(opens.size()), 1.0);
}

std::optional<double> mean(double ns, double opens) {
  return opens == 0 ? std::nullopt : std::optional<double>(ns / opens);
}

void measure(Observed& observed) {
  ObservedFile sum;
  double hits = 0, ns_of_hits = 0;
  for (const ObservedFile& file : observed.files) {
    for (std::size_t i = 0; i < sum.counts.size(); ++i) sum.counts[i] += file.counts[i];
    const double slow = file.slow_opens() + file.number(recorded::k_from_tier);
    const double opens = file.number(recorded::k_file_opens);
    if (slow == opens) continue;
    hits += opens;
    ns_of_hits += file.number(recorded::k_file_memory_ns);
  }
  observed.bytes = sum.at(recorded::k_file_size);
  observed.origin_ns = mean(sum.number(recorded::k_file_origin_ns), sum.slow_opens());
  observed.memory_ns = mean(ns_of_hits, hits);
  observed.tier_ns = mean(sum.number(recorded::k_file_tier_ns), sum.number(recorded::k_from_tier));
  // An open of a file in a pack costs one read. With the cache, the reads are part of the open, so
  // their time is unknown.
  if (!observed.has_cache)
    observed.packed_ns = mean(sum.number(recorded::k_file_read_ns), sum.slow_opens());
}

}  // namespace

bool observe(const std::vector<RawFile>& files, double epochs, Observed& observed,
             std::string& why) {
  Files all;
  bool is_cut = false;
  std::uint64_t bad_lines = 0, other_versions = 0, opens = 0;
  for (const RawFile& file : files) {
    bad_lines += file.bad_lines;
    other_versions += file.other_versions;
    for (const RawSection& section : file.sections) {
      is_cut = is_cut || !section.is_whole;
      observed.has_cache = observed.has_cache || !section.observes;
      ++observed.processes;
      for (const RawUse& use : section.files) {
        opens += use.counts[recorded::k_file_opens];
        add_use(all[use.path_hash], use);
      }
    }
  }
  const char* const wrong =
      other_versions != 0 ? "they are of another version of cubeshim: observe the run again"
      : is_cut            ? "they are cut off: a process could not write all of its file"
      : bad_lines != 0    ? "they have lines that the profiler never writes"
      : opens == 0        ? "the run is empty: it opened no file below the prefixes to read it"
                          : nullptr;
  if (wrong != nullptr) {
    why = wrong;
    return false;
  }
  std::uint64_t first_ns = UINT64_MAX, last_ns = 0;
  for (const auto& [hash, file] : all) {
    first_ns = std::min(first_ns, file.at(recorded::k_first_ns));
    last_ns = std::max(last_ns, file.at(recorded::k_last_ns));
    observed.files.push_back(file);
  }
  std::sort(observed.files.begin(), observed.files.end(),
            [](const ObservedFile& a, const ObservedFile& b) {
              return a.at(recorded::k_first_ns) < b.at(recorded::k_first_ns);
            });
  const double span = static_cast<double>(std::max(last_ns, first_ns + 1) - first_ns);
  double reading = 0;
  for (const RawFile& file : files) {
    for (const RawSection& section : file.sections)
      reading += reading_ns(section, static_cast<double>(opens));
  }
  observed.readers = std::max(reading / span, 1.0);
  observed.seconds = span / 1e9;
  observed.epochs = epochs != 0 ? epochs : epochs_of(observed.files);
  note_sites(files, observed);
  const ProfileCost cost = make_profile(files).cost;
  observed.profiler_seconds = static_cast<double>(cost.call_ns + cost.stack_ns) / 1e9;
  measure(observed);
  return true;
}

}  // namespace cube::cli
