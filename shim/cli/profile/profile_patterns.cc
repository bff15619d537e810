#include "shim/cli/profile/profile_patterns.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/core.h>

namespace cube::cli {
namespace {

constexpr std::uint64_t k_few = 2;              // a smaller count may be chance
constexpr std::uint64_t k_part_worth_it = 100;  // costs below 1/100 of the wall time are minor
constexpr const char* k_locks = "locks that materialize files";

// True if `count` is at least `percent` of `of`. Rare cases are not a pattern.
bool is_many(std::uint64_t count, std::uint64_t of, std::uint64_t percent) {
  return count >= k_few && count * 100 >= of * percent;
}

std::uint64_t share(std::uint64_t whole, std::uint64_t part, std::uint64_t of) {
  return of == 0 ? 0
                 : static_cast<std::uint64_t>(static_cast<double>(whole) *
                                              static_cast<double>(std::min(part, of)) /
                                              static_cast<double>(of));
}

void look_at_opens(const ProfileSite& site, std::vector<Pattern>& found) {
  const auto& o = site.opens;
  const std::uint64_t closed = o[shim::profile::k_closed];
  if (closed == 0) return;
  const auto add = [&](const char* name, std::uint64_t count, std::uint64_t cost_ns,
                       std::string seen, const char* advice) {
    found.push_back(
        {name, text_of_site(site), std::move(seen), advice, site.example, count, cost_ns});
  };
  const auto of_files = [&](std::uint64_t count) {
    return fmt::format("{} of {} files", count, closed);
  };
  const auto each = [&](shim::profile::OpenCount count) {
    return (o[count] + closed / 2) / closed;
  };
  if (is_many(o[shim::profile::k_storms], closed, 10)) {
    add("seek storm", o[shim::profile::k_storms], o[shim::profile::k_storm_ns],
        fmt::format("{}, {} reads and {} seeks each", of_files(o[shim::profile::k_storms]),
                    each(shim::profile::k_reads), each(shim::profile::k_seeks)),
        "serve the directory (--prefix), or read the file whole and decode it from memory: "
        "load(io.BytesIO(open(path, 'rb').read())), cv2.imdecode(numpy.fromfile(path, 'uint8'), "
        "flags)");
  }
  if (is_many(o[shim::profile::k_tiny_files], closed, 10)) {
    add("tiny reads", o[shim::profile::k_tiny_files], o[shim::profile::k_tiny_ns],
        fmt::format(
            "{}, {} reads of {} bytes each", of_files(o[shim::profile::k_tiny_files]),
            each(shim::profile::k_reads),
            o[shim::profile::k_read_bytes] / std::max<std::uint64_t>(o[shim::profile::k_reads], 1)),
        "serve the directory, open the file with a larger buffer (open(path, 'rb', buffering=1 << "
        "20)), or read it whole and "
        "decode it from memory (io.BytesIO)");
  }
  if (is_many(o[shim::profile::k_whole_again], closed, 5)) {
    add("whole file read twice", o[shim::profile::k_whole_again],
        o[shim::profile::k_whole_again_ns], of_files(o[shim::profile::k_whole_again]),
        "keep the bytes of the first reading (io.BytesIO), or serve the directory: the second one "
        "comes from memory then");
  }
  if (is_many(o[shim::profile::k_opened_again], closed, 10)) {
    add("file opened again", o[shim::profile::k_opened_again], o[shim::profile::k_opened_again_ns],
        of_files(o[shim::profile::k_opened_again]),
        "keep the file open, or decode the bytes of one read: "
        "cv2.imdecode(numpy.fromfile(path, 'uint8'), "
        "flags) opens the file once, cv2.imread twice");
  }
  if (is_many(o[shim::profile::k_stat_first], closed, 50)) {
    add("stat before open", o[shim::profile::k_stat_first],
        o[shim::profile::k_stat_first_us] * 1000, of_files(o[shim::profile::k_stat_first]),
        "open the file and handle the error, or serve the directory: its stats come from memory "
        "then");
  }
  if (is_many(o[shim::profile::k_unread], closed, 20)) {
    add("files opened and not read", o[shim::profile::k_unread],
        share(site.counts[shim::profile::k_ns], o[shim::profile::k_unread], closed),
        of_files(o[shim::profile::k_unread]),
        "open a file only for its bytes; for its size, use os.stat");
  }
  if (o[shim::profile::k_large_random] != 0) {
    add("large file read at random", o[shim::profile::k_large_random],
        o[shim::profile::k_large_random_ns],
        fmt::format("{} of {} files above 16 MiB, {} of {} reads jump",
                    o[shim::profile::k_large_random], o[shim::profile::k_large],
                    o[shim::profile::k_jumps], o[shim::profile::k_reads]),
        "serve it in blocks (CUBESHIM_BLOCK), with room for all of it (CUBESHIM_RAM, "
        "CUBESHIM_DISK_DIR), or load it first with cubeshim warmup");
  }
}

void look_at_calls(const ProfileSite& site, std::vector<Pattern>& found) {
  const std::string_view kind = shim::profile::k_kind_names[site.kind];
  const std::uint64_t calls = site.counts[shim::profile::k_calls],
                      again = site.counts[shim::profile::k_again];
  if (kind == "list" && again >= k_few) {
    found.push_back({"tree listed again", text_of_site(site),
                     fmt::format("{} listings of directories that were listed before", again),
                     "list once and keep the names; served listings come from memory "
                     "(CUBESHIM_METADATA, CUBESHIM_METADATA_TTL=job)",
                     site.example, again, share(site.counts[shim::profile::k_ns], again, calls)});
  }
  if (kind == "lock" && calls != 0) {
    found.push_back({k_locks, text_of_site(site),
                     fmt::format("{} lock{}", calls, calls == 1 ? "" : "s"),
                     "open what is only read without locks: HDF5_USE_FILE_LOCKING=FALSE, "
                     "h5py.File(path, locking=False)",
                     site.example, calls, site.counts[shim::profile::k_ns]});
  }
}

// The program's function that waits longest for the origin: its most expensive site and its time.
struct Waiting {
  const ProfileSite* most = nullptr;
  std::uint64_t ns = 0;
  std::string example;
};
Waiting find_waiting(const Profile& profile) {
  std::map<std::string, Waiting> functions;
  for (const auto& site : profile.sites) {
    const ProfileFrame* const own = own_function(site);
    Waiting& one = functions[own != nullptr ? text_of_frame(*own) : text_of_site(site)];
    const std::uint64_t ns = site.counts[shim::profile::k_origin_ns];
    one.ns += ns;
    if (one.most == nullptr || ns > one.most->counts[shim::profile::k_origin_ns]) one.most = &site;
    if (one.example.empty()) one.example = site.example;
  }
  return std::max_element(functions.begin(), functions.end(),
                          [](const auto& a, const auto& b) { return a.second.ns < b.second.ns; })
      ->second;
}

// Adds a pattern if usually at most one call to the origin is in flight.
void look_at_time_line(const Profile& profile, std::vector<Pattern>& found) {
  std::uint64_t busy = 0, calls = 0;
  for (const auto& bin : profile.bins) {
    busy += bin.busy_ns;
    calls += bin.calls;
  }
  constexpr std::uint64_t k_worth_it_ns = 50'000'000, k_many_calls = 32;
  if (busy < k_worth_it_ns || calls < k_many_calls) return;
  // The time before the first call (imports) and after the last call does not belong to the epoch.
  const std::uint64_t with_calls = profile.bins.size() * profile.bin_width_ns;
  const std::uint64_t span =
      profile.bins.back().at_ns - profile.bins.front().at_ns + profile.bin_width_ns;
  if (busy < span / 10 || span == 0 || with_calls == 0) return;
  const double in_flight = static_cast<double>(busy) / static_cast<double>(with_calls);
  if (in_flight > 1.3) return;
  const Waiting waiting = find_waiting(profile);
  found.push_back(
      {"serial first epoch", text_of_site(*waiting.most),
       fmt::format("{} calls of the origin, {:.1f} at a time on average, {:.0f} % of the time "
                   "from the first to the last",
                   calls, in_flight, 100.0 * static_cast<double>(busy) / static_cast<double>(span)),
       "have the files fetched ahead, many at a time: loaders of torch announce them by themselves "
       "(--announce 1); else "
       "cubeshim.announce(), or a list (CUBESHIM_PREFETCH_LIST)",
       waiting.example, calls, busy});
}

// Merges the sites of each function, because a pattern describes all calls that a function makes.
std::vector<ProfileSite> by_function(const Profile& profile) {
  std::map<std::pair<std::size_t, std::string>, ProfileSite> sites;
  for (const auto& site : profile.sites) {
    const auto [known, is_new] = sites.emplace(std::pair(site.kind, text_of_site(site)), site);
    if (is_new) continue;
    for (std::size_t i = 0; i < site.counts.size(); ++i) known->second.counts[i] += site.counts[i];
    for (std::size_t i = 0; i < site.opens.size(); ++i) known->second.opens[i] += site.opens[i];
    if (known->second.example.empty()) known->second.example = site.example;
  }
  std::vector<ProfileSite> all;
  all.reserve(sites.size());
  for (auto& [key, site] : sites) all.push_back(std::move(site));
  return all;
}

}  // namespace

std::vector<Pattern> find_patterns(const Profile& profile) {
  std::vector<Pattern> found;
  for (const auto& site : by_function(profile)) {
    look_at_opens(site, found);
    look_at_calls(site, found);
  }
  if (!profile.sites.empty()) look_at_time_line(profile, found);
  // The pattern of locks is never minor: a lock is cheap, but materializing its file is expensive.
  for (Pattern& one : found)
    one.is_minor =
        one.cost_ns < (profile.end_ns - profile.start_ns) / k_part_worth_it && one.name != k_locks;
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.cost_ns > b.cost_ns; });
  return found;
}

}  // namespace cube::cli
