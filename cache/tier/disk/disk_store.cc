#include "cache/tier/disk/disk_store.h"

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "cache/base/hash.h"
#include "cache/base/process/process_id.h"

namespace cube::cache {
namespace {

// A job number that no other process has, for a process that is a job of its own.
std::uint64_t own_job() {
  const base::ProcessId self = base::current_process();
  const std::uint64_t parts[] = {self.pid, self.start_time, self.pid_namespace};
  return base::hash_bytes(parts, sizeof parts) | 1;
}

}  // namespace

DiskStore::DiskStore(const DiskOptions& options, DiskDirectory directory)
    : options_(options), directory_(std::move(directory)) {
  if (options_.job == 0) options_.job = own_job();
}

DiskStore::~DiskStore() {
  seal();
  pthread_mutex_destroy(&mutex_);
}

base::Result<std::unique_ptr<DiskStore>> DiskStore::open(const DiskOptions& options,
                                                         std::string& why) {
  try {
    auto directory =
        DiskDirectory::open(options.directory, options.name, options.is_read_only, why);
    if (!directory) return base::fail(directory.error().value);
    std::unique_ptr<DiskStore> store(new (std::nothrow) DiskStore(options, std::move(*directory)));
    if (store == nullptr) return base::fail(ENOMEM);
    if (const auto attached = store->attach(why); !attached)
      return base::fail(attached.error().value);
    return store;
  } catch (...) {
    return base::fail(ENOMEM);
  }
}

std::uint64_t DiskStore::least_bound_for(std::uint64_t data_bytes) const {
  constexpr std::uint64_t k_most_head = 2 * k_page;
  if (is_private_ || data_bytes + k_most_head <= largest_record()) return 0;
  // Rounds up, because segment files consist of whole pages (see choose_sizes()).
  return 16 * base::round_up(data_bytes + k_most_head + segment_bytes_ - largest_record(), k_page);
}

std::uint64_t DiskStore::used_bytes() const {
  std::uint64_t pages = 0;
  for (std::uint32_t i = 0; i < index_->geometry().row_count; ++i) {
    const DiskSegmentRow& row = index_->row(i);
    if (row.state() != DiskSegmentState::free) pages += row.pages.load(std::memory_order_relaxed);
  }
  return pages * k_page + (is_private_ ? 0 : index_->reserved_bytes());
}

DiskStatus DiskStore::status() const {
  DiskStatus status{.capacity = bound_,
                    .bad_records = bad_records_.load(std::memory_order_relaxed),
                    .io_errors = io_errors_.load(std::memory_order_relaxed),
                    .evicted = evicted_.load(std::memory_order_relaxed),
                    .is_read_only = is_private_};
  if (!index_->is_there()) return status;
  status.used = used_bytes();
  for (std::uint32_t i = 0; i < index_->geometry().row_count; ++i) {
    const DiskSegmentRow& row = index_->row(i);
    if (row.state() == DiskSegmentState::free) continue;
    ++status.segments;
    const std::uint32_t records = row.records.load(std::memory_order_relaxed);
    status.entries += records - std::min(records, row.dropped.load(std::memory_order_relaxed));
  }
  return status;
}

void DiskStore::distrust_all() {
  if (!index_->is_there()) return;
  for (std::uint32_t i = 0; i < index_->geometry().row_count; ++i)
    index_->row(i).job.store(0, std::memory_order_seq_cst);
}

}  // namespace cube::cache
