#include "cache/report/job_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <tuple>

#include "cache/base/clock.h"
#include "cache/base/unique_fd.h"
#include "cache/region/process_slots.h"

namespace cube::cache {
namespace {

using base::Counter;

// Opens that were not served: the name in JSON, the counter, and what the text says. `full` has two texts (below).
struct Bypassed {
  const char* name;
  Counter counter;
  const char* reason;
};
constexpr Bypassed k_bypassed[] = {
    {"size", Counter::bypassed_size, "of files larger than CUBESHIM_MAX_FILE (raise it)"},
    {"full", Counter::bypassed_full, nullptr},
    {"names", Counter::bypassed_names, "of files with too many other names, or of too many with one inode number"},
    {"write", Counter::bypassed_write, "for writing"},
    {"flags", Counter::bypassed_flags, "with flags that need the kernel (O_DIRECT, O_PATH ...)"},
    {"kind", Counter::bypassed_kind, "of directories and other things that are no regular files"},
    {"busy", Counter::bypassed_busy, "of files that were being written or took too long (they are cached later)"},
    {"error", Counter::bypassed_error, "that failed (no such file, no permission ...)"},
};
constexpr const char* k_memory_is_full = "while the memory was full (raise CUBESHIM_RAM)";
constexpr const char* k_index_is_full = "while the index was full: very many small files (raise CUBESHIM_RAM)";

double share(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

template <typename... Args>
void append(ReportText& text, fmt::format_string<Args...> format, Args&&... args) {
  const std::size_t room = sizeof text.bytes - text.size;
  text.size += std::min(room, fmt::format_to_n(text.bytes + text.size, room, format, static_cast<Args&&>(args)...).size);
}

void append_rates(ReportText& text, const char* label, std::uint64_t requests, std::uint64_t hits) {
  const std::uint64_t misses = requests > hits ? requests - hits : 0;
  append(text, "cubeshim: {} request_count:{} hit_count:{} miss_count:{} hit_rate:{:.2f}% miss_rate:{:.2f}%\n", label, requests,
         hits, misses, 100 * share(hits, requests), 100 * share(misses, requests));
}

void append_served(ReportText& text, const JobTotals& job, std::span<const std::string> prefixes) {
  const std::uint64_t served = job.hits() + job.totals[Counter::misses];
  append(text, "cubeshim: served {} of {} opens under the prefixes", served, job.opens());
  const char* before = "; not served: ";
  for (const auto& [name, counter, reason] : k_bypassed) {
    if (job.totals[counter] == 0) continue;
    append(text, "{}{} {}", before, job.totals[counter],
           reason != nullptr   ? reason
           : job.is_index_full ? k_index_is_full
                               : k_memory_is_full);
    before = ", ";
  }
  std::uint64_t others = job.totals[Counter::materialized];
  if (others != 0) append(text, "; served, then handed to the kernel: {}", others);
  before = " (for ";
  for (const auto& call : job.materialized_by) {
    if (call.count == 0) continue;
    append(text, "{}{} {}", before, call.name, call.count);
    others -= std::min(others, call.count);
    before = ", ";
  }
  if (*before == ',' && others != 0) append(text, ", others {}", others);
  if (*before == ',') append(text, ")");
  if (job.misspelled[0] != '\0') {
    append(
        text,
        "; not seen: {} lies below a prefix but was opened by another name (add that name of the directory to CUBESHIM_PREFIXES)",
        job.misspelled);
  } else if (job.opens() == 0 && !prefixes.empty()) {
    append(text, "; no file below");
    for (const auto& prefix : prefixes) append(text, "{} {}", &prefix == prefixes.data() ? "" : ",", prefix);
    append(text, " was opened (is that how the program spells it? `cubeshim doctor` looks at the prefixes)");
  }
  append(text, "\n");
}

// %p becomes the pid. False where it is too long.
bool expand(std::string_view pattern, std::uint32_t pid, char (&path)[PATH_MAX]) {
  std::size_t n = 0;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const bool is_pid = pattern[i] == '%' && i + 1 < pattern.size() && pattern[i + 1] == 'p';
    const std::size_t room = sizeof path - n;
    n += is_pid ? fmt::format_to_n(path + n, room, "{}", pid).size : fmt::format_to_n(path + n, room, "{}", pattern[i]).size;
    if (n >= sizeof path) return false;
    if (is_pid) ++i;
  }
  path[n] = '\0';
  return true;
}

// In a directory where all may make files, one that is somebody else's or has a second name may have been put there to be
// written to. The kernel refuses it too, where fs.protected_regular is set.
bool may_be_planted(const char* path, const struct ::stat& file) {
  char directory[PATH_MAX];
  const std::string_view text(path);
  const std::string_view parent = text.substr(0, text.rfind('/') + 1);  // none: the working directory
  *fmt::format_to_n(directory, sizeof directory - 1, "{}.", parent).out = '\0';
  struct ::stat st {};
  if (base::sys::failed(base::sys::fstatat(AT_FDCWD, directory, &st, 0)) || (st.st_mode & S_IWOTH) == 0) return false;
  const bool stranger = file.st_uid != static_cast<uid_t>(base::sys::raw(SYS_geteuid)) && file.st_uid != st.st_uid;
  return stranger || file.st_nlink != 1;
}

// The end of a program waits for nobody: not for the reader of a FIFO, nor for who holds a lease.
base::Result<base::UniqueFd> open_report(const char* path) {
  auto file = base::open_fd(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0644);
  if (!file) return file;
  struct ::stat st {};
  if (base::sys::failed(base::sys::fstat(file->get(), &st))) return base::fail(EIO);
  const bool is_regular = S_ISREG(st.st_mode);
  if (!is_regular && !S_ISFIFO(st.st_mode) && !S_ISCHR(st.st_mode)) return base::fail(EPERM);
  if (is_regular && may_be_planted(path, st)) return base::fail(EPERM);
  return file;
}

void write_out(const base::Config& config, std::uint32_t pid, std::string_view text) {
  if (config.stats == "stderr") return base::write_to_stderr(text);
  char path[PATH_MAX];
  const auto complain = [&](long error) {
    base::log(base::LogLevel::warn, "CUBESHIM_STATS: cannot write {}: {}", path, strerrordesc_np(static_cast<int>(error)));
  };
  if (!expand(config.stats, pid, path)) return;
  const auto file = open_report(path);
  if (!file) return complain(file.error().value);
  const long n = base::write_quietly(file->get(), text);
  if (n != static_cast<long>(text.size())) complain(base::sys::failed(n) ? -n : ENOSPC);
}

// The tiers that the job has.
template <typename Each>
void for_each_tier(const JobTotals& job, Each&& each) {
  for (std::size_t i = 0; i < base::k_tiers; ++i) {
    if (job.tiers[i].capacity != 0) each(base::k_tier_kinds[i], job.tiers[i]);
  }
}

}  // namespace

std::uint64_t JobTotals::requests() const {
  return hits() + totals[Counter::misses] + totals[Counter::bypassed_full] + totals[Counter::bypassed_names] +
         totals[Counter::bypassed_busy] + totals[Counter::bypassed_size];
}

std::uint64_t JobTotals::hits() const {
  std::uint64_t sum = totals[Counter::hits_ram];
  for (const base::TierKind& kind : base::k_tier_kinds) sum += totals[kind.hits];
  return sum;
}

std::uint64_t JobTotals::opens() const {
  std::uint64_t sum = hits() + totals[Counter::misses];
  for (const auto& [name, counter, reason] : k_bypassed) sum += totals[counter];
  return sum;
}

void count_materialized(Region& region, std::uint32_t job, const char* call) {
  std::uint64_t name[2] = {};
  std::memcpy(name, call, std::min(std::strlen(call), sizeof name));
  for (CallCount& row : region.job_row(job).materialized_by) {
    std::uint64_t first = 0;
    if (row.name[0].compare_exchange_strong(first, name[0], std::memory_order_relaxed)) {
      row.name[1].store(name[1], std::memory_order_relaxed);
    } else if (first != name[0] || row.name[1].load(std::memory_order_relaxed) != name[1]) {
      continue;
    }
    row.count.fetch_add(1, std::memory_order_relaxed);
    return;
  }
}

void note_misspelled(Region& region, std::uint32_t job, std::string_view path) {
  JobRow& row = region.job_row(job);
  std::uint32_t none = 0;
  if (!row.misspelled_state.compare_exchange_strong(none, 1, std::memory_order_relaxed)) return;
  // The end of a long path tells more.
  constexpr std::string_view k_left_out = "...";
  constexpr std::size_t k_room = sizeof row.misspelled - 1;
  const bool fits = path.size() <= k_room;
  if (!fits) path.remove_prefix(path.size() - (k_room - k_left_out.size()));
  *fmt::format_to_n(row.misspelled, k_room, "{}{}", fits ? "" : k_left_out, path).out = '\0';
  // Pairs with the acquire in collect.
  row.misspelled_state.store(2, std::memory_order_release);
}

JobTotals collect(Region& region, std::uint32_t job) {
  JobTotals result;
  result.totals.add(region.job_row(job).finished);
  for (std::uint32_t i = 0; i < slots_reached(region); ++i) {
    const ProcessSlot& slot = region.process_slot(i);
    if (slot.used.load(std::memory_order_acquire) != 0 && slot.job == job) result.totals.add(slot.stats);
  }
  const RegionLayout& layout = region.layout();
  result.ram_capacity = std::uint64_t{layout.segment_bytes} * layout.segment_count;
  result.ram_used = region.header().used_bytes.load(std::memory_order_relaxed);
  result.ram_entries = region.header().records.load(std::memory_order_relaxed);
  const JobRow& row = region.job_row(job);
  // Another process wrote these characters, and the report may go to a terminal.
  const auto is_printed = [](char c) { return c >= ' ' && c <= '~'; };
  if (row.misspelled_state.load(std::memory_order_acquire) == 2) {
    for (std::size_t i = 0; i + 1 < sizeof result.misspelled && row.misspelled[i] != '\0'; ++i)
      result.misspelled[i] = is_printed(row.misspelled[i]) ? row.misspelled[i] : '?';
  }
  for (std::uint32_t i = 0; i < k_call_counts; ++i) {
    const CallCount& from = row.materialized_by[i];
    const std::uint64_t name[2] = {from.name[0].load(std::memory_order_relaxed), from.name[1].load(std::memory_order_relaxed)};
    std::memcpy(result.materialized_by[i].name, name, sizeof name);
    for (char& c : result.materialized_by[i].name) c = c == '\0' || is_printed(c) ? c : '?';
    result.materialized_by[i].count = from.count.load(std::memory_order_relaxed);
  }
  const RegionHeader& header = region.header();
  result.is_index_full = header.index_full.load(std::memory_order_relaxed) == RegionHeader::k_for_good;
  for (std::size_t i = 0; i < base::k_tiers; ++i) {
    const TierRow& tier = header.tiers[i];
    result.tiers[i] = {.capacity = tier.capacity.load(std::memory_order_relaxed),
                       .used = tier.used.load(std::memory_order_relaxed),
                       .entries = tier.entries.load(std::memory_order_relaxed),
                       .unwritten = tier.unwritten.load(std::memory_order_relaxed)};
  }
  for (std::uint32_t i = 0; i < layout.segment_count; ++i)
    result.unread += region.segment_row(i).unread.load(std::memory_order_relaxed);
  return result;
}

ReportText report_as_json(const JobTotals& job) {
  const auto n = [&](Counter counter) { return job.totals[counter]; };
  const auto us = [](const auto& histogram, double q) { return static_cast<double>(base::quantile_ns(histogram, q)) / 1000.0; };
  const auto& [hit, miss] = std::tie(job.totals.hit_latency, job.totals.miss_latency);
  ReportText text;
  append(text, R"({{"opens":{},"hits":{{"ram":{})", job.opens(), n(Counter::hits_ram));
  for_each_tier(
      job, [&](const base::TierKind& kind, const base::TierStatus&) { append(text, R"(,"{}":{})", kind.name, n(kind.hits)); });
  append(text, R"(}},"misses":{},"bypassed":{{)", n(Counter::misses));
  const char* comma = "";
  for (const auto& [name, counter, reason] : k_bypassed) {
    append(text, R"({}"{}":{})", comma, name, n(counter));
    comma = ",";
  }
  append(text, R"(}},"hit_rate":{},"bytes_served":{},)", share(job.hits(), job.requests()), n(Counter::bytes_served));
  append(text, R"("origin":{{"opens":{},"reads":{},"bytes":{},"stats":{}}},)", n(Counter::origin_opens), n(Counter::origin_reads),
         n(Counter::origin_bytes), n(Counter::origin_stats));
  append(text, R"("stat_hits":{},"calls_saved":{},"materialized":{},"stale_marked":{},)", n(Counter::stat_hits),
         n(Counter::calls_saved), n(Counter::materialized), n(Counter::stale_marked));
  append(text, R"("prefetch":{{"fetched":{},"early":{},"late":{},"wasted":{},"duplicate":{},"unread":{}}},)",
         n(Counter::prefetch_fetched), n(Counter::prefetch_early), n(Counter::prefetch_late), n(Counter::prefetch_wasted),
         n(Counter::prefetch_duplicate), job.unread);
  append(text, R"("ram":{{"capacity":{},"used":{},"entries":{}}},)", job.ram_capacity, job.ram_used, job.ram_entries);
  for_each_tier(job, [&](const base::TierKind& kind, const base::TierStatus& tier) {
    append(text, R"("{}":{{"capacity":{},"used":{},"entries":{},"unwritten":{}}},)", kind.name, tier.capacity, tier.used,
           tier.entries, tier.unwritten);
  });
  append(text, R"("latency_us":{{"hit":{{"p50":{:.3f},"p99":{:.3f}}},"miss":{{"p50":{:.3f},"p99":{:.3f}}}}}}}{})", us(hit, 0.5),
         us(hit, 0.99), us(miss, 0.5), us(miss, 0.99), '\n');
  return text;
}

ReportText report_as_text(const JobTotals& job, std::uint64_t last_requests, std::uint64_t last_hits,
                          std::span<const std::string> prefixes) {
  const std::uint64_t requests = job.requests();
  ReportText text;
  append_rates(text, "cycle", requests - std::min(last_requests, requests), job.hits() - std::min(last_hits, job.hits()));
  append_rates(text, "sum", requests, job.hits());
  const auto n = [&](Counter counter) { return job.totals[counter]; };
  if (n(Counter::prefetch_fetched) != 0) {
    append(text, "cubeshim: prefetch fetched:{} early:{} late:{} wasted:{} duplicate:{} unread:{}\n",
           n(Counter::prefetch_fetched), n(Counter::prefetch_early), n(Counter::prefetch_late), n(Counter::prefetch_wasted),
           n(Counter::prefetch_duplicate), job.unread);
  }
  for_each_tier(job, [&](const base::TierKind& kind, const base::TierStatus& tier) {
    append(text, "cubeshim: {} hit_count:{} entries:{} used:{} capacity:{} unwritten:{}\n", kind.name, n(kind.hits), tier.entries,
           tier.used, tier.capacity, tier.unwritten);
  });
  append_served(text, job, prefixes);
  return text;
}

void write_report(Region& region, std::uint32_t job, const base::Config& config, std::uint32_t pid, bool has_opened_many) {
  if (config.stats == "off") return;
  JobRow& row = region.job_row(job);
  const JobTotals totals = collect(region, job);
  const std::uint64_t last_requests = row.reported_requests.exchange(totals.requests(), std::memory_order_relaxed);
  const std::uint64_t last_hits = row.reported_hits.exchange(totals.hits(), std::memory_order_relaxed);
  if (config.stats_format == base::StatsFormat::json) {
    write_out(config, pid, report_as_json(totals).view());
  } else if (totals.opens() != 0 || config.stats != "stderr" || totals.misspelled[0] != '\0' || has_opened_many) {
    write_out(config, pid, report_as_text(totals, last_requests, last_hits, config.prefixes).view());
  }
}

void write_empty_report(const base::Config& config, std::uint32_t pid, bool has_opened_many) {
  if (config.stats == "off") return;
  if (config.stats_format == base::StatsFormat::json) return write_out(config, pid, report_as_json({}).view());
  if (!has_opened_many) return;
  ReportText text;
  append_served(text, {}, config.prefixes);
  write_out(config, pid, text.view());
}

bool report_interval_passed(Region& region, std::uint32_t job, std::uint64_t interval_seconds) {
  std::atomic<std::uint64_t>& next = region.job_row(job).next_report_ns;
  const std::uint64_t now = base::coarse_monotonic_ns();
  std::uint64_t due = next.load(std::memory_order_relaxed);
  if (now < due) return false;
  const bool first = due == 0;  // the interval begins with the first open
  return next.compare_exchange_strong(due, now + interval_seconds * 1'000'000'000ULL, std::memory_order_relaxed) && !first;
}

}  // namespace cube::cache
