#include "shim/cli/plan/forecast.h"

#include <algorithm>
#include <cmath>

#include "cache/record/record.h"
#include "cache/region/large/chunks.h"
#include "cache/region/layout.h"
#include "cache/region/ring.h"

namespace cube::cli {
namespace {

namespace recorded = shim::profile;

std::uint64_t most_read(const ObservedFile& file, double epochs) {
  const auto size = file.at(recorded::k_file_size);
  return std::min(size, static_cast<std::uint64_t>(file.number(recorded::k_file_bytes) / epochs));
}

// Simulates how RamTier (cache/region/ram) and Chunks (cache/region/large) fill the part of a
// region that is not reused.
class Rooms {
 public:
  Rooms(const cache::RegionLayout& layout, std::uint32_t segments, std::size_t windows)
      : layout_(layout), free_(segments), fills_(windows, layout.segment_bytes) {}

  bool take(std::size_t window, std::uint64_t path, std::uint64_t size) {
    const std::uint64_t segment = layout_.segment_bytes;
    if (const std::uint64_t run = cache::plan_record(0, path, size).end; run > segment) {
      const auto count = static_cast<std::uint32_t>((run + segment - 1) / segment);
      if (count > free_) return false;
      free_ -= count;
      return true;
    }
    std::uint64_t& fill = fills_[window % fills_.size()];
    if (is_full_ && segment - fill < k_worth_leasing) return false;
    if (cache::plan_record(fill, path, size).end > segment && !next_segment(fill, path, size))
      return false;
    fill = cache::plan_record(fill, path, size).end;
    return true;
  }
  bool take_chunk() {
    if (free_chunks_ == 0 && free_ != 0) {
      --free_;
      places_ += layout_.chunks_of_segment();
      free_chunks_ += layout_.chunks_of_segment();
    }
    if (free_chunks_ == 0) return false;
    --free_chunks_;
    return true;
  }
  std::uint32_t places() const { return places_; }

 private:
  // This value must equal k_worth_leasing of ram_tier_reserve.cc.
  static constexpr std::uint64_t k_worth_leasing = 64 << 10;

  bool next_segment(std::uint64_t& fill, std::uint64_t path, std::uint64_t size) {
    const std::uint64_t segment = layout_.segment_bytes;
    const auto fits = [&](std::uint64_t left) {
      return cache::plan_record(left, path, size, cache::RecordShape::mappable).end <= segment;
    };
    const std::uint64_t before = fill;
    if (const auto left = std::find_if(left_.begin(), left_.end(), fits); left != left_.end()) {
      fill = *left;
      left_.erase(left);
    } else if (free_ != 0) {
      --free_;
      fill = 0;
    } else {
      is_full_ = true;
      return false;
    }
    if (segment - before >= k_worth_leasing) left_.push_back(before);
    return true;
  }

  const cache::RegionLayout layout_;
  std::uint32_t free_, free_chunks_ = 0, places_ = 0;
  std::vector<std::uint64_t> fills_;  // the fill level of each process's segment
  std::vector<std::uint64_t> left_;   // the fill levels of segments that no process has leased
  bool is_full_ = false;
};

// For each file, the share that memory keeps, 0 to 1.
struct Kept {
  std::vector<double> shares;
  bool is_all = true;
};

// True if there is prefetching or a disk, because a region then has a ring.
bool makes_ring(const Observed& observed, std::uint64_t disk) {
  const auto ahead = std::count_if(observed.files.begin(), observed.files.end(),
                                   [](const auto& file) { return file.was_fetched_ahead(); });
  return disk != 0 || (observed.has_cache && static_cast<double>(ahead) >
                                                 0.01 * static_cast<double>(observed.files.size()));
}

Kept keep_in_memory(const Observed& observed, std::uint64_t ram, bool has_ring,
                    const base::Config& config) {
  const cache::RegionLayout layout = cache::layout_for(ram);
  const std::uint64_t ring_bytes =
      config.ring.is_percent ? layout.file_bytes * config.ring.value / 100 : config.ring.value;
  const std::uint32_t ring = has_ring ? cache::Ring::segments_for(layout, ring_bytes) : 0;
  // The first listing occupies a whole segment.
  const std::uint32_t names = config.metadata && observed.lists && layout.segment_count > 1 ? 1 : 0;
  constexpr double k_most_readers = 1024;  // the number of process slots in a region
  Rooms rooms(layout, layout.segment_count - std::min(layout.segment_count, ring + names),
              static_cast<std::size_t>(std::lround(std::min(observed.readers, k_most_readers))));
  Kept kept;
  std::vector<double> chunks(observed.files.size());
  double placed = 0, wanted_chunks = 0;
  for (std::size_t i = 0; i < observed.files.size(); ++i) {
    const ObservedFile& file = observed.files[i];
    const std::uint64_t size = file.at(recorded::k_file_size);
    double share = 0;
    if (size <= config.max_file) {
      share = rooms.take(i, static_cast<std::uint64_t>(observed.path_length), size) ? 1 : 0;
    } else if (config.block != 0) {
      const auto wanted = std::max<std::uint64_t>(
          (most_read(file, observed.epochs) + cache::k_chunk_bytes - 1) / cache::k_chunk_bytes, 1);
      std::uint64_t got = 0;
      while (got < wanted && rooms.take_chunk()) ++got;
      share = static_cast<double>(got) / static_cast<double>(wanted);
      chunks[i] = static_cast<double>(got);
      placed += chunks[i];
      wanted_chunks += static_cast<double>(wanted);
    }
    kept.is_all = kept.is_all && share == 1;
    kept.shares.push_back(share);
  }
  // If chunks do not find a free place, they use some of the places in turn.
  const double passing =
      wanted_chunks == placed
          ? 0
          : static_cast<double>(cache::Chunks::most_passing(rooms.places())) / placed;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    if (chunks[i] != 0) kept.shares[i] *= 1 - std::min(passing, 1.0);
  }
  return kept;
}

std::uint64_t bytes_on_disk(const Observed& observed, const ObservedFile& file) {
  return cache::plan_record(0, static_cast<std::uint64_t>(observed.path_length),
                            file.at(recorded::k_file_size), cache::RecordShape::compact)
      .end;
}

// The shares of a file that memory, a tier and the origin answer in the forecast epoch. They add up
// to 1.
struct Ways {
  double memory = 0, tier = 0, origin = 0;
};

class Sum {
 public:
  Sum(const Observed& observed, const Wish& wish, const base::Config& config)
      : observed_(observed), wish_(wish), config_(config) {}

  void add(const ObservedFile& file, const Ways& ways, bool has_ring) {
    const double epochs = observed_.epochs;
    const double opens = file.number(recorded::k_file_opens) / epochs,
                 firsts = file.first_opens() / epochs;
    const bool is_large = file.at(recorded::k_file_size) > config_.max_file;
    // The file is fetched ahead if it was fetched ahead in the observed run. A later open in the
    // same epoch finds the file in the ring or, without a ring, asks the origin again.
    const bool is_ahead = !is_large && observed_.has_cache && file.was_fetched_ahead();
    const double asks = is_ahead ? 0 : ways.origin * (has_ring || is_large ? firsts : opens);
    opens_ += opens;
    hits_ += opens - asks;
    ns_ += file.number(recorded::k_file_memory_ns) / epochs;
    if (is_large) return add_large(file, ways);
    add_to_origin(file, ways.origin * (is_ahead || has_ring ? firsts : opens));
    add_to_tier(file, ways.tier * firsts);
    is_at_least_ = is_at_least_ || (ways.memory != 0 && !observed_.has_cache);
    // The kernel reads a mapped file at page faults, which the profiler does not see.
    lacks_ = lacks_ || (!observed_.has_cache && file.at(recorded::k_file_maps) != 0);
  }

  Epoch epoch() const {
    double of_run = 0;
    for (const ObservedFile& file : observed_.files) of_run += file.all_ns();
    // The rest of the program's time is the same under all settings.
    const double in_calls = (of_run / 1e9 + observed_.profiler_seconds) / observed_.readers;
    const double own = std::max(observed_.seconds - in_calls, 0.0);
    Epoch epoch;
    epoch.hit_ratio = opens_ == 0 ? 0 : hits_ / opens_;
    epoch.is_at_least = is_at_least_;
    if (!lacks_)
      epoch.seconds =
          (own / observed_.epochs + ns_ / observed_.readers / 1e9) / std::max(wish_.nodes, 1U);
    return epoch;
  }

 private:
  void add_to_origin(const ObservedFile& file, double opens) {
    if (opens == 0) return;
    const double slow = file.slow_opens();
    if (wish_.has_pack) {
      lacks_ = lacks_ || !observed_.packed_ns;
      if (slow != 0) ns_ += opens * file.number(recorded::k_file_read_ns) / slow;
    } else if (slow != 0) {
      ns_ += opens * file.number(recorded::k_file_origin_ns) / slow;
    } else if (!file.was_fetched_ahead()) {
      lacks_ = lacks_ || !observed_.origin_ns;
      ns_ += opens * observed_.origin_ns.value_or(0);
    }
  }
  void add_to_tier(const ObservedFile& file, double opens) {
    if (opens == 0) return;
    lacks_ = lacks_ || !observed_.tier_ns;
    const double own = file.number(recorded::k_from_tier);
    ns_ += opens *
           (own != 0 ? file.number(recorded::k_file_tier_ns) / own : observed_.tier_ns.value_or(0));
  }
  // The kernel answers every open of a large file.
  void add_large(const ObservedFile& file, const Ways& ways) {
    const double reads = file.number(recorded::k_file_read_ns);
    ns_ += (file.number(recorded::k_file_origin_ns) - reads) / observed_.epochs;
    // If all files fit, only the first epoch of the observed run read from the origin. Without a
    // cache, no blocks were read ahead.
    ns_ += ways.origin * reads;
    lacks_ = lacks_ || !observed_.has_cache || ways.tier != 0 || wish_.has_pack ||
             file.at(recorded::k_file_maps) != 0;
  }

  const Observed& observed_;
  const Wish& wish_;
  const base::Config& config_;
  double opens_ = 0, hits_ = 0, ns_ = 0;
  bool is_at_least_ = false, lacks_ = false;
};

}  // namespace

Forecast forecast(const Observed& observed, const Wish& wish, const base::Config& config) {
  const bool has_ring = makes_ring(observed, wish.disk);
  const Kept kept = keep_in_memory(observed, wish.ram, has_ring, config);
  Sum first(observed, wish, config), later(observed, wish, config);
  std::uint64_t on_disk = 0;
  for (std::size_t i = 0; i < observed.files.size(); ++i) {
    const ObservedFile& file = observed.files[i];
    on_disk += bytes_on_disk(observed, file);
    const double memory = kept.shares[i], tier = on_disk <= wish.disk ? 1 - memory : 0;
    first.add(file, {.origin = 1}, /*has_ring=*/true);
    later.add(file, {.memory = memory, .tier = tier, .origin = 1 - memory - tier}, has_ring);
  }
  return {first.epoch(), later.epoch()};
}

std::uint64_t ram_for_all(const Observed& observed, const base::Config& config) {
  constexpr std::uint64_t k_step = 1 << 20, k_least = 8;
  const bool has_ring = makes_ring(observed, /*disk=*/0);
  const auto holds_all = [&](std::uint64_t steps) {
    return keep_in_memory(observed, steps * k_step, has_ring, config).is_all;
  };
  const std::uint64_t most = 4 * (observed.bytes / k_step) + 64;
  if (!holds_all(most)) return 0;
  std::uint64_t low = k_least - 1, high = most;
  while (high - low > 1) {
    const std::uint64_t middle = low + (high - low) / 2;
    (holds_all(middle) ? high : low) = middle;
  }
  return high * k_step;
}

std::uint64_t disk_for_all(const Observed& observed) {
  std::uint64_t sum = 0;
  for (const ObservedFile& file : observed.files) sum += bytes_on_disk(observed, file);
  return sum;
}

}  // namespace cube::cli
