#include "cache/region/life/process_slots.h"

#include <fcntl.h>

#include <algorithm>
#include <atomic>

#include "cache/base/process/block_signals.h"
#include "cache/region/lanes.h"
#include "cache/region/life/life_lock.h"
#include "cache/region/region.h"

namespace cube::cache {

std::uint32_t slots_reached(const Region& region) {
  // Limits the value, because the region may be corrupt.
  return std::min(region.header().slots_reached.load(std::memory_order_seq_cst),
                  region.layout().process_slots);
}

bool is_segment_pinned(const Region& region, std::uint32_t segment) {
  const std::uint32_t reached = slots_reached(region);
  for (std::uint32_t process = 0; process < reached; ++process) {
    if (pins_of(region, process, segment) != 0) return true;
  }
  return false;
}

namespace {

std::uint64_t word_of_program(std::uint32_t pid, std::uint64_t pid_namespace) {
  return (pid_namespace << 32) | pid;
}

std::atomic<std::uint64_t>& attached_row(Region& region, std::uint32_t pid) {
  return region.header().attached[pid % RegionHeader::k_attached];
}

}  // namespace

void note_attached(Region& region, const base::ProcessId& self) {
  // Release: the parent loads the row only after it has waited for the end of this process.
  attached_row(region, self.pid)
      .store(word_of_program(self.pid, self.pid_namespace), std::memory_order_release);
}

bool take_attached(Region& region, const base::ProcessId& self, std::uint32_t child) {
  std::uint64_t word = word_of_program(child, self.pid_namespace);
  return attached_row(region, child).compare_exchange_strong(word, 0, std::memory_order_acq_rel);
}

void note_exec(Region& region, const base::ProcessId& self) {
  take_attached(region, self, self.pid);
}

bool process_is_alive(Region& region, std::uint32_t slot) {
  // A jump out of this function would leave the probe's fd open.
  const base::BlockSignals block;
  return region.process_slot(slot).used.load(std::memory_order_acquire) != 0 &&
         LifeProbe(region.reopen(O_RDONLY)).is_held(slot);
}

std::uint32_t process_word(const Region& region, std::uint32_t slot) {
  const std::uint32_t generation =
      region.process_slot(slot).generation.load(std::memory_order_relaxed);
  return (generation & 0xfff) << 12 | (slot + 1);
}

bool process_of_word_is_alive(Region& region, std::uint32_t word) {
  const std::uint32_t slot = slot_of_word(word);
  return slot < region.layout().process_slots && process_word(region, slot) == word &&
         process_is_alive(region, slot);
}

bool report_is_due(Region& region, const base::ProcessId& except) {
  for (std::uint32_t i = 0; i < region.layout().job_rows; ++i) {
    const JobRow& row = region.job_row(i);
    if (row.leader.pid == 0 || row.leader == except ||
        row.reported.load(std::memory_order_relaxed) != 0)
      continue;
    // If the job's first process runs as another user, the first process uses another region, and
    // reads no report here.
    if (base::liveness_of(row.leader) == base::Liveness::alive && base::is_of_this_user(row.leader))
      return true;
  }
  return false;
}

}  // namespace cube::cache
