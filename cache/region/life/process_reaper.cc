#include "cache/region/life/process_reaper.h"

#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <bitset>
#include <cerrno>
#include <cstring>
#include <utility>

#include "cache/base/clock.h"
#include "cache/region/lanes.h"
#include "cache/region/large/chunks.h"
#include "cache/region/life/life_lock.h"
#include "cache/region/listings.h"
#include "cache/region/mailbox/mailbox.h"
#include "cache/region/region.h"
#include "cache/region/segments.h"
#include "cache/region/single_flight.h"
#include "cache/region/writers.h"

namespace cube::cache {
namespace {

// If there are more processes than this, each process is checked only once a second, because the
// kernel walks all locks for each check.
constexpr std::uint32_t k_many = 64;
constexpr std::uint64_t k_between_looks_ns = 1'000'000'000;

// Moves the value of the counter `one` to `sum`. If this process is killed in between, the value is
// lost, but is never counted twice.
template <typename Word>
void move_counter(Word& one, Word& sum) {
  // Release: a reader that sees the value in `sum` no longer sees it in `one`. Pairs with the
  // fences in collect_all.
  sum.fetch_add(one.exchange(0, std::memory_order_relaxed), std::memory_order_release);
}

void move_counters(base::Stats& from, base::Stats& to) {
  for (std::size_t i = 0; i < base::k_counters; ++i) move_counter(from.counters[i], to.counters[i]);
  for (std::size_t i = 0; i < base::Histogram::k_buckets; ++i) {
    move_counter(from.hit_latency.counts[i], to.hit_latency.counts[i]);
    move_counter(from.miss_latency.counts[i], to.miss_latency.counts[i]);
  }
}

void move_to_job(Region& region, std::uint32_t index) {
  ProcessSlot& slot = region.process_slot(index);
  if (slot.job >= region.layout().job_rows) return;  // The region is corrupt.
  base::Stats& sum = region.job_row(slot.job).finished;
  move_counters(slot.stats, sum);
  for (std::uint32_t lane = 0, n = lanes_reached(region, index); lane < n; ++lane) {
    for (std::size_t i = 0; i < LaneRow::k_counters; ++i)
      move_counter(region.lane_row(index, lane).counters[i],
                   sum.counters[static_cast<std::size_t>(LaneRow::k_counted[i])]);
  }
}

void clear_slot(Region& region, std::uint32_t index) {
  ProcessSlot& slot = region.process_slot(index);
  move_to_job(region, index);
  release_leases_of(region, index);
  forget_chunks_of(region, index);
  forget_writers_of(region, index);
  forget_pins_of(region, index);
  // If the process has executed another program, the process has lost its lock together with its
  // memory, but the job continues.
  if (slot.job < region.layout().job_rows && region.job_row(slot.job).leader == slot.process &&
      base::liveness_of(slot.process) != base::Liveness::alive)
    region.job_row(slot.job).reported.store(1, std::memory_order_relaxed);
  forget_flights_of(region, index);
  forget_posts_of(region, index);
  forget_mail_of(region, index);
  slot.demand_waits.store(0, std::memory_order_relaxed);
  slot.demand_fetches.store(0, std::memory_order_relaxed);
  slot.demand_ns.store(0, std::memory_order_relaxed);
  slot.process = {};
  slot.view.store(0, std::memory_order_relaxed);
  slot.has_left_view.store(0, std::memory_order_relaxed);
  slot.command.store(0, std::memory_order_relaxed);
  slot.used.store(0, std::memory_order_release);
}

using JobSet = std::bitset<k_most_job_rows>;

JobSet jobs_in_use(const Region& region) {
  JobSet jobs;
  for (std::uint32_t i = 0; i < slots_reached(region); ++i) {
    const ProcessSlot& slot = region.process_slot(i);
    if (slot.used.load(std::memory_order_relaxed) != 0 && slot.job < region.layout().job_rows)
      jobs.set(slot.job);
  }
  return jobs;
}

// Returns the oldest unused row that was claimed later than the row with this `last_used`. If there
// is none, returns the number of rows.
std::uint32_t oldest_unused_job(const Region& region, const JobSet& used, std::uint64_t last_used) {
  const std::uint32_t rows = region.layout().job_rows;
  std::uint32_t best = rows;
  for (std::uint32_t i = 0; i < rows; ++i) {
    const JobRow& row = region.job_row(i);
    if (used.test(i) || row.last_used <= last_used) continue;
    if (best == rows || row.last_used < region.job_row(best).last_used) best = i;
  }
  return best;
}

// Returns the oldest unused row whose job is known to have ended. If there is none, returns the
// oldest unused row whose job may have ended, or the number of rows.
std::uint32_t find_job_that_is_over(const Region& region) {
  const std::uint32_t rows = region.layout().job_rows;
  const JobSet used = jobs_in_use(region);
  std::uint32_t unknown = rows;
  for (std::uint32_t i = oldest_unused_job(region, used, 0); i != rows;
       i = oldest_unused_job(region, used, region.job_row(i).last_used)) {
    const auto liveness = base::liveness_of(region.job_row(i).leader);
    if (liveness == base::Liveness::dead) return i;
    if (liveness == base::Liveness::unknown && unknown == rows) unknown = i;
  }
  return unknown;
}

base::Result<std::uint32_t> claim_job(Region& region, const base::ProcessId& job, bool& is_new) {
  const std::uint32_t rows = region.layout().job_rows;
  std::uint32_t row = rows;
  std::uint64_t newest = 0;
  for (std::uint32_t i = 0; i < rows; ++i) {
    const JobRow& known = region.job_row(i);
    if (known.leader == job) return i;
    newest = std::max(newest, known.last_used);
    if (row == rows && known.leader.pid == 0) row = i;
  }
  if (row == rows) row = find_job_that_is_over(region);
  if (row == rows) return base::fail(EDQUOT);
  JobRow& mine = region.job_row(row);
  move_counters(mine.finished, region.forgotten_jobs());
  std::memset(static_cast<void*>(&mine), 0, sizeof mine);
  mine.leader = job;
  mine.last_used = newest + 1;
  mine.started_ns = base::boot_ns();
  is_new = true;
  return row;
}

// This process must already hold the slot's life lock.
base::Result<SlotClaim> claim_slot(Region& region, std::uint32_t index, LifeLock& lock,
                                   const base::ProcessId& self, const base::ProcessId& job) {
  SlotClaim claim;
  claim.slot = index;
  auto life = lock.keep();
  if (!life) return base::fail(life.error().value);
  claim.life = std::move(*life);
  const auto row = claim_job(region, job, claim.is_new_job);
  if (!row) return base::fail(row.error().value);
  claim.job = *row;
  ProcessSlot& slot = region.process_slot(index);
  slot.job = *row;
  if (job == self) region.job_row(*row).reported.store(0, std::memory_order_relaxed);
  slot.process = self;
  note_attached(region, self);
  slot.generation.fetch_add(1, std::memory_order_relaxed);
  // seq_cst, before the first pin: either a process that checks the pins on a segment sees this
  // store, or this process sees the mark on the segment (Ring::is_pinned).
  if (slots_reached(region) <= index)
    region.header().slots_reached.store(index + 1, std::memory_order_seq_cst);
  slot.used.store(1, std::memory_order_release);
  return claim;
}

}  // namespace

base::Result<SlotClaim> claim_process_slot(Region& region, const base::ProcessId& self,
                                           const base::ProcessId& job, SlotFor use) {
  const std::uint32_t slots = region.layout().process_slots - (use == SlotFor::program ? 1 : 0);
  auto fd = region.reopen(O_RDWR);
  if (!fd) return base::fail(fd.error().value);
  LifeLock lock = LifeLock::open(std::move(*fd));
  for (const bool thoroughly : {false, true}) {
    reap_dead_processes(region, k_nobody, thoroughly);
    for (std::uint32_t i = 0; i < slots; ++i) {
      if (region.process_slot(i).used.load(std::memory_order_relaxed) != 0) continue;
      const auto taken = lock.take(i);
      if (taken) return claim_slot(region, i, lock, self, job);
      // EAGAIN: a process that has left the slot holds the lock until the kernel has freed its
      // memory.
      if (taken.error().value != EAGAIN) return base::fail(taken.error().value);
    }
  }
  return base::fail(EUSERS);
}

void release_process_slot(Region& region, std::uint32_t slot) { clear_slot(region, slot); }

std::uint32_t reap_dead_processes(Region& region, std::uint32_t except, bool thoroughly) {
  const std::uint32_t reached = slots_reached(region);
  const auto is_used = [&](std::uint32_t i) {
    return i != except && region.process_slot(i).used.load(std::memory_order_acquire) != 0;
  };
  std::uint32_t left = 0;
  for (std::uint32_t i = 0; i < reached; ++i) left += is_used(i) ? 1 : 0;
  if (left == 0) return 0;
  const LifeProbe probe(region.reopen(O_RDONLY));
  const std::uint64_t now = base::coarse_monotonic_ns();
  std::atomic<std::uint64_t>& looked_ns = region.header().reaped_ns;
  if (left > k_many && !thoroughly &&
      now - looked_ns.load(std::memory_order_relaxed) < k_between_looks_ns) {
    const std::uint32_t before = std::min(except, reached);
    if (probe.is_held(0, before) ||
        (before < reached && probe.is_held(before + 1, reached - before - 1)))
      return left;
  }
  looked_ns.store(now, std::memory_order_relaxed);
  for (std::uint32_t i = 0; i < reached; ++i) {
    if (!is_used(i) || probe.is_held(i)) continue;
    clear_slot(region, i);
    --left;
  }
  return left;
}

}  // namespace cube::cache
