#include "shim/calls/map/shared_model.h"

#include <algorithm>

#include "cache/base/clock.h"
#include "cache/base/process/block_signals.h"
#include "cache/base/process/process_id.h"
#include "cache/region/life/process_slots.h"
#include "shim/threads/own_threads.h"

namespace cube::shim::shared_model {
namespace {

using cache::LargeFile;

constexpr std::uint64_t k_longest_ns = 1'000'000'000;
// From k_trial_ns on, the rate is checked every k_check_ns.
constexpr std::uint64_t k_trial_ns = 100'000'000, k_check_ns = 50'000'000;
// The threads get this much of the file at a time. If the caller gives up, they still fetch the
// rest of what they were given.
constexpr std::uint64_t k_window = 8 << 20;

// Fetches a range, as long as all of it would arrive within k_longest_ns at the rate so far.
class Bringing {
 public:
  Bringing(cache::LargeFiles& large, LargeFile& file, const cache::FdEpoch& fd,
           const LargeFile::Range& range)
      : large_(large), file_(file), fd_(fd), range_(range) {}
  // Fetches a part of the range. False: the caller must give up.
  bool bring(const LargeFile::Range& part) {
    while (!large_.bring_to_map(file_, fd_, part, check_ns_, pace_)) {
      if (base::monotonic_ns() < check_ns_ || !is_fast_enough()) return false;
    }
    return true;
  }

 private:
  bool is_fast_enough() {
    const std::uint64_t now = base::monotonic_ns();
    check_ns_ = now + k_check_ns;
    const std::uint64_t present = large_.present_bytes(file_, range_);
    const std::uint64_t came = present - std::min(present, before_),
                        rest = range_.end - range_.begin - present;
    // In microseconds, so that the products fit into 64 bits.
    const std::uint64_t passed_us = (now - began_ns_) / 1000, longest_us = k_longest_ns / 1000;
    return passed_us < longest_us && rest * passed_us <= came * (longest_us - passed_us);
  }

  cache::LargeFiles& large_;
  LargeFile& file_;
  const cache::FdEpoch& fd_;
  const LargeFile::Range range_;
  const std::uint64_t began_ns_ = base::monotonic_ns(),
                      before_ = large_.present_bytes(file_, range_);
  std::uint64_t check_ns_ = began_ns_ + k_trial_ns;
  LargeFile::Pace pace_;
};

// Whether `is` is true for the slot of another process.
template <typename Is>
bool has_other(const cache::Region& region, const Is& is) {
  const std::uint32_t end = slots_reached(region);
  for (std::uint32_t i = 0; i < end; ++i) {
    const cache::ProcessSlot& slot = region.process_slot(i);
    if (i != region.own_slot() && slot.used.load(std::memory_order_acquire) != 0 && is(slot))
      return true;
  }
  return false;
}

bool has_twin(const cache::Region& region) {
  // A jump out of this function would leave an fd open.
  const base::BlockSignals block;
  const auto command_of = [](const cache::ProcessSlot& slot) {
    return slot.command.load(std::memory_order_relaxed);
  };
  const std::uint64_t own = command_of(region.process_slot(region.own_slot()));
  return has_other(region, [&](const cache::ProcessSlot& slot) {
    return base::is_twin(slot.process, command_of(slot), own);
  });
}

// Whether the file may be a model, judging by its first page. If this page is absent, returns true
// only for a mapping that begins with it, because the page will then be fetched anyway.
bool may_be_model(cache::LargeFiles& large, const LargeFile& file, const LargeFile::Range& mapped) {
  const bool is_unknown = mapped.begin == 0 && large.present_bytes(file, {0, 1}) == 0;
  return is_unknown || large.is_of_whole_format(file);
}

}  // namespace

bool bring(cache::FileCache& cache, const KeptFile& kept, const cache::FdEpoch& fd,
           const LargeFile::Range& mapped) {
  auto* const reader = own_threads::reader();
  LargeFile& file = *kept->large;
  cache::LargeFiles& large = cache.large();
  if (reader == nullptr || !reader->may_follow_mappings() || file.is_read_at_random() ||
      !may_be_model(large, file, mapped))
    return false;
  const LargeFile::Range range{mapped.begin, std::min(mapped.end, file.size())};
  if (large.present_bytes(file, range) == range.end - range.begin) {
    large.note_mapping_of_ranks(file);
    return false;
  }
  if (!has_other(cache.region(), [](const cache::ProcessSlot&) { return true; })) return false;
  // This must be loaded before the check that the fd still refers to the file.
  const LargeFile::FdsLeft fds_left = file.fds_left();
  if (!fd.goes_on()) return false;
  Bringing bringing(large, file, fd, range);
  // Ranks that begin at the same time meet here, before the first page has arrived.
  large.note_mapping_of_ranks(file);
  // The first page shows the format. After a longer read, the kernel would read ahead.
  if (range.begin == 0 && !bringing.bring({0, 1})) return true;
  if (!large.is_of_whole_format(file) ||
      !(large.note_mapping_of_ranks(file) || has_twin(cache.region())) || !large.fits(file, range))
    return true;
  std::uint64_t submitted = range.begin;
  for (std::uint64_t at = range.begin, next = 0; at < range.end; at = next) {
    next = std::min((at / large.block() + 1) * large.block(), range.end);
    if (large.present_bytes(file, {at, next}) == next - at) continue;
    submitted = std::max(submitted, at);
    const LargeFile::Range wanted{submitted, std::min(at + k_window, range.end), /*passes=*/false};
    if (submitted <= at + k_window / 2 && !wanted.is_empty() &&
        reader->submit(file, fd.fd(), fds_left, wanted))
      submitted = wanted.end;
    if (!bringing.bring({at, next})) break;
  }
  return true;
}

}  // namespace cube::shim::shared_model
