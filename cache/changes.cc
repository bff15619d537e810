#include "cache/changes.h"

#include <atomic>

#include "cache/base/hash.h"
#include "cache/region/last_changes.h"

namespace cube::cache {
namespace {

// A process that makes a change first announces it (a count, a stripe, a mark), and then searches
// the index for the record. A fetch first enters its record in the index (Index::insert), and then
// checks for changes (ChangeWatch). The loads of the index are acquire or weaker. Without the fence
// they could come before the announcement, and neither side would see the other.
void look_after_telling() { std::atomic_thread_fence(std::memory_order_seq_cst); }

}  // namespace

void Changes::changed(std::string_view key, const FileStat* stat, std::uint32_t how,
                      const FileStat* now, std::uint64_t before_ns) {
  if (!key.empty()) parts_.region.header().name_changes.fetch_add(1, std::memory_order_seq_cst);
  // The epoch is incremented first, so that a fetch that has read the old bytes and is about to
  // publish them sees the change.
  if (stat != nullptr)
    writer_stripe_of(parts_.region, *stat).epoch.fetch_add(1, std::memory_order_seq_cst);
  else
    parts_.region.header().tree_changes.fetch_add(1, std::memory_order_seq_cst);
  parts_.region.header().file_changes.fetch_add(1, std::memory_order_seq_cst);
  if (stat != nullptr) note_last_change(parts_.region, *stat, how, before_ns);
  look_after_telling();
  // Marks by the inode first. A record of the path that is still unmarked afterwards belongs to
  // another file.
  std::size_t marked = stat == nullptr ? 0 : parts_.ram.mark_stale_inode(*stat, how, before_ns);
  if (!key.empty()) marked += parts_.ram.mark_stale(key, how & ~Record::k_in_place, now);
  parts_.stats().count(base::Counter::stale_marked, marked);
  // The marks must be visible before the tiers' indices are searched. Pairs with the fence in
  // DiskStore::publish.
  look_after_telling();
  parts_.for_each_tier([&](Tier& tier) { tier.content_changed(key, stat); });
}

void Changes::name_lost(const Record& record, const FileStat* now) {
  changed(record.path(), record.has_only_this_name() ? &record.stat : nullptr, Record::k_gone, now);
}

void Changes::doubt_identity(std::string_view key, const FileStat* now) {
  // name_lost() skips a record of the path that an earlier change has marked. Marking the record
  // itself makes find_former() return the next record.
  constexpr int k_most_records = 8;
  for (int i = 0; i < k_most_records; ++i) {
    const Pin record = parts_.ram.find_former(key, now);
    if (!record) return;
    name_lost(*record, now);
    parts_.ram.mark_record_stale(*record, Record::k_gone);
  }
}

void Changes::entries_changed(const FileStat& directory) {
  // The directory's own stat has changed, too. The search by inode finds its records under all
  // paths.
  content_changed({}, &directory);
}

void Changes::tree_changed(std::string_view directory) {
  parts_.region.header().name_changes.fetch_add(1, std::memory_order_seq_cst);
  parts_.region.header().tree_changes.fetch_add(1, std::memory_order_seq_cst);
  look_after_telling();
  if (!is_empty())
    parts_.stats().count(base::Counter::stale_marked, parts_.ram.mark_stale_tree(directory));
  parts_.for_each_tier([](Tier& tier) { tier.tree_changed(); });
}

void Changes::all_changed() {
  parts_.region.header().file_changes.fetch_add(1, std::memory_order_seq_cst);
  parts_.region.doubt_all();
  tree_changed("/");
}

void Changes::writing_begins(std::string_view key, const FileStat& stat) {
  cube::cache::writing_begins(parts_.region, stat);
  bytes_changed(key, stat);
}

void Changes::writing_is_shared(const FileStat& stat, Sharing how) {
  cube::cache::writing_is_shared(parts_.region, stat, how);
}

void Changes::child_writes(std::string_view key, const FileStat& stat) {
  // The file is counted once, even if the program starts a thousand children.
  if (!cube::cache::is_writing_shared(parts_.region, stat))
    cube::cache::writing_begins(parts_.region, stat);
  cube::cache::writing_is_shared(parts_.region, stat);
  bytes_changed(key, stat);
}

void Changes::writing_ends(const FileStat& stat) {
  bytes_changed({}, stat);
  cube::cache::writing_ends(parts_.region, stat);
}

}  // namespace cube::cache
