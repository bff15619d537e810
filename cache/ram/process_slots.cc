#include "cache/ram/process_slots.h"

#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "cache/base/clock.h"
#include "cache/ram/region.h"
#include "cache/ram/segments.h"
#include "cache/ram/writers.h"
#include "cache/single_flight.h"

namespace cube::cache {
namespace {

// The slot whose mutex a thread of this process holds; the thread's TLS value points at it.
constinit std::atomic<bool> g_held{false};
constinit pthread_key_t g_key{};
constinit std::atomic<bool> g_key_made{false};

void unlock_at_thread_end(void* mutex) {
  if (!g_held.load(std::memory_order_relaxed)) return;
  pthread_mutex_unlock(static_cast<pthread_mutex_t*>(mutex));
  g_held.store(false, std::memory_order_release);
}

// The caller holds slot.life, whose holder is gone or is changing. Is the process alive?
bool alive_without_holder(const ProcessSlot& slot, bool holder_died) {
  switch (base::liveness_of(slot.process)) {
    case base::Liveness::alive: return true;
    case base::Liveness::dead: return false;
    case base::Liveness::unknown: return !holder_died;
  }
  return true;
}

// Moves the counters, one by one: whoever is killed in between loses the one in hand, and counts none twice.
void move_to_job(Region& region, ProcessSlot& slot) {
  if (slot.job >= k_job_rows) return;  // a region with wrong bytes
  base::Stats& sum = region.job_row(slot.job).finished;
  const auto move = [](auto& from, auto& to) {
    to.fetch_add(from.exchange(0, std::memory_order_relaxed), std::memory_order_relaxed);
  };
  for (std::size_t i = 0; i < base::k_counters; ++i) move(slot.stats.counters[i], sum.counters[i]);
  for (std::size_t i = 0; i < base::Histogram::k_buckets; ++i) {
    move(slot.stats.hit_latency.counts[i], sum.hit_latency.counts[i]);
    move(slot.stats.miss_latency.counts[i], sum.miss_latency.counts[i]);
  }
}

void clear_slot(Region& region, std::uint32_t index) {
  ProcessSlot& slot = region.process_slot(index);
  move_to_job(region, slot);
  release_leases_of(region, index);
  forget_writers_of(region, index);
  auto* const pins = region.pin_row(index);
  for (std::uint32_t s = 0; s < region.layout().segment_count; ++s) pins[s].store(0, std::memory_order_release);
  if (slot.job < k_job_rows && region.job_row(slot.job).leader == slot.process)
    region.job_row(slot.job).reported.store(1, std::memory_order_relaxed);
  forget_flights_of(region, index);
  slot.demand_waits.store(0, std::memory_order_relaxed);
  slot.demand_fetches.store(0, std::memory_order_relaxed);
  slot.demand_ns.store(0, std::memory_order_relaxed);
  slot.process = {};
  slot.used.store(0, std::memory_order_release);
}

// Locks the mutex for the life of this thread.
bool hold(pthread_mutex_t* mutex) {
  if (!g_key_made.load(std::memory_order_acquire)) {
    static constinit std::atomic<bool> making{false};
    if (making.exchange(true)) return false;
    if (pthread_key_create(&g_key, unlock_at_thread_end) != 0) return false;
    g_key_made.store(true, std::memory_order_release);
  }
  const int error = pthread_mutex_trylock(mutex);
  if (error == EOWNERDEAD) pthread_mutex_consistent(mutex);
  if (error != 0 && error != EOWNERDEAD) return false;
  pthread_setspecific(g_key, mutex);
  g_held.store(true, std::memory_order_release);
  return true;
}

bool job_is_in_use(Region& region, std::uint32_t job) {
  for (std::uint32_t i = 0; i < k_process_slots; ++i) {
    const ProcessSlot& slot = region.process_slot(i);
    if (slot.used.load(std::memory_order_relaxed) != 0 && slot.job == job) return true;
  }
  return false;
}

base::Result<std::uint32_t> claim_job(Region& region, const base::ProcessId& job) {
  std::uint32_t best = k_job_rows;
  std::uint64_t newest = 0, best_key = 0;
  for (std::uint32_t i = 0; i < k_job_rows; ++i) {
    JobRow& row = region.job_row(i);
    newest = row.last_used > newest ? row.last_used : newest;
    if (row.leader == job) return i;
    if (row.leader.pid == 0) {
      if (best == k_job_rows || region.job_row(best).leader.pid != 0) best = i;
      continue;
    }
    const auto liveness = base::liveness_of(row.leader);
    if (job_is_in_use(region, i) || liveness == base::Liveness::alive) continue;
    // One that is known to be dead rather than one that cannot be known of, and of each kind the oldest.
    const std::uint64_t age_key = row.last_used | (liveness == base::Liveness::unknown ? 1ULL << 63 : 0);
    if (best == k_job_rows || (region.job_row(best).leader.pid != 0 && age_key < best_key)) {
      best = i;
      best_key = age_key;
    }
  }
  if (best == k_job_rows) return base::fail(EUSERS);
  JobRow& row = region.job_row(best);
  std::memset(static_cast<void*>(&row), 0, sizeof row);
  row.leader = job;
  row.last_used = newest + 1;
  row.started_ns = base::boot_ns();
  return best;
}

}  // namespace

base::Result<Claim> claim_process_slot(Region& region, const base::ProcessId& self, const base::ProcessId& job) {
  reap_dead_processes(region, k_process_slots);
  // Left by ourselves before an exec: same process, another program; its mutex went with the old one. Wherever it is: what it
  // holds would look alive for as long as we are.
  for (std::uint32_t i = 0; i < k_process_slots; ++i) {
    const ProcessSlot& slot = region.process_slot(i);
    if (slot.used.load(std::memory_order_relaxed) != 0 && slot.process == self) clear_slot(region, i);
  }
  for (std::uint32_t i = 0; i < k_process_slots; ++i) {
    ProcessSlot& slot = region.process_slot(i);
    if (slot.used.load(std::memory_order_relaxed) != 0) continue;
    // A process that has left holds its mutex until it is really gone.
    if (!hold(&slot.life)) continue;
    const auto row = claim_job(region, job);
    if (!row) return base::fail(row.error().value);
    slot.job = *row;
    if (job == self) region.job_row(*row).reported.store(0, std::memory_order_relaxed);
    slot.process = self;
    slot.seen_dead.store(0, std::memory_order_relaxed);
    slot.generation.fetch_add(1, std::memory_order_relaxed);
    slot.used.store(1, std::memory_order_release);
    return Claim{i, *row};
  }
  return base::fail(EUSERS);
}

void release_process_slot(Region& region, std::uint32_t slot) {
  clear_slot(region, slot);
  // Only the thread that holds it can; otherwise the kernel does when we are gone.
  if (pthread_mutex_unlock(&region.process_slot(slot).life) != 0) return;
  pthread_setspecific(g_key, nullptr);
  g_held.store(false, std::memory_order_release);
}

std::uint32_t reap_dead_processes(Region& region, std::uint32_t except) {
  std::uint32_t left = 0;
  for (std::uint32_t i = 0; i < k_process_slots; ++i) {
    if (i == except || region.process_slot(i).used.load(std::memory_order_acquire) == 0) continue;
    if (process_is_alive(region, i)) {
      ++left;
    } else {
      clear_slot(region, i);
    }
  }
  return left;
}

bool process_is_alive(Region& region, std::uint32_t index) {
  ProcessSlot& slot = region.process_slot(index);
  if (slot.used.load(std::memory_order_acquire) == 0 || slot.seen_dead.load(std::memory_order_relaxed) != 0) return false;
  const int error = pthread_mutex_trylock(&slot.life);
  if (error != 0 && error != EOWNERDEAD) return true;
  if (error == EOWNERDEAD) pthread_mutex_consistent(&slot.life);
  const bool alive = alive_without_holder(slot, error == EOWNERDEAD);
  if (!alive) slot.seen_dead.store(1, std::memory_order_relaxed);
  pthread_mutex_unlock(&slot.life);
  return alive;
}

bool report_is_due(Region& region, const base::ProcessId& except) {
  for (std::uint32_t i = 0; i < k_job_rows; ++i) {
    const JobRow& row = region.job_row(i);
    if (row.leader.pid == 0 || row.leader == except || row.reported.load(std::memory_order_relaxed) != 0) continue;
    // One that has started us as another user has a region of that user's, and will not look here.
    if (base::liveness_of(row.leader) == base::Liveness::alive && base::is_of_this_user(row.leader)) return true;
  }
  return false;
}

void keep_alive(Region& region) {
  if (!g_held.load(std::memory_order_acquire)) hold(&region.process_slot(region.own_slot()).life);
}

void forget_claim_after_fork() {
  if (g_key_made.load(std::memory_order_relaxed)) pthread_setspecific(g_key, nullptr);
  g_held.store(false, std::memory_order_relaxed);
}

}  // namespace cube::cache
