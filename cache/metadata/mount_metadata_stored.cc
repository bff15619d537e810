// MountMetadata: uses a listing that an earlier job has left in a tier, if a stat of the directory
// proves it.
#include <cerrno>

#include "cache/base/clock.h"
#include "cache/metadata/mount_metadata.h"
#include "cache/record/recent_change.h"
#include "cache/region/directory_watch.h"
#include "cache/tier/rights.h"

namespace cube::cache {

class MountMetadata::StoredListing final : public Tier::Judge {
 public:
  StoredListing(MountMetadata& metadata, std::string_view key, const char* path)
      : Judge(RecordKind::directory),
        metadata_(metadata),
        watch_(*metadata.region_),
        key_(key),
        path_(path) {}

  bool ask(const Tiers& tiers, bool is_remote) {
    is_remote_ = is_remote;
    for (Tier* const tier : tiers) {
      tier_ = tier;
      if (tier->visit(key_, *this)) return true;
    }
    return false;
  }
  Pin& pin() { return pin_; }

 private:
  Tier::Verdict judge(const Record& record) override {
    if (record.kind != RecordKind::directory) return Tier::Verdict::refused;
    const auto data = DirectoryData::of(record);
    if (!data || !data->has_true_times()) return Tier::Verdict::refused;
    // Other programs may have written to the tier, so the entries are checked.
    if (DirectoryData::count_of(data->entries()) != data->count()) return Tier::Verdict::refused;
    if (!has_asked_) look(record.is_physical());
    if (!stat_ || record.is_physical() != is_physical_ ||
        !is_proven_open(record, *metadata_.region_))
      return Tier::Verdict::refused;
    // The mount must be known to keep the times of directories. A process knows this only after it
    // has read a directory of the mount.
    if (!metadata_.times_.are_known_to_be_kept(stat_->device())) return Tier::Verdict::refused;
    const Tier::Verdict version = tier_->judge_version(record, *stat_);
    if (version != Tier::Verdict::taken) return version;
    // The entries contain inode numbers, which must be the ones that this node sees.
    if (!tier_->has_our_inodes(record)) return Tier::Verdict::refused;
    return !may_be_racy(record) && show(record, *data) ? Tier::Verdict::taken
                                                       : Tier::Verdict::refused;
  }

  void look(bool is_physical) {
    has_asked_ = true;
    is_physical_ = is_physical;
    began_ns_ = base::boot_ns();
    const auto& changes = metadata_.region_->header().file_changes;
    const std::uint64_t before = changes.load(std::memory_order_seq_cst);
    metadata_.region_->stats().count(base::Counter::metadata_revalidations);
    stat_ = stat_of_directory(path_, is_physical);
    if (stat_) watch_.watch(*stat_);
    // If the count has changed, a file may have been changed after the stat but before the watch
    // began.
    if (changes.load(std::memory_order_seq_cst) != before) stat_ = base::fail(EAGAIN);
  }

  bool show(const Record& record, const DirectoryData& data) {
    RecordContent content;
    content.kind = RecordKind::directory;
    content.path = key_;
    content.stat = *stat_;
    content.physical = is_physical_;
    (is_remote_ ? content.from_cluster : content.from_disk) = true;
    content.fetched_ns = record.fetched_ns;
    content.verified_ns = began_ns_;
    const DirectoryData::Proves proves{.proves_negative_entries = data.proves_negative_entries(),
                                       .has_true_times = true};
    pin_ = metadata_.publish(
        content, DirectoryData::bytes_for(data.count(), data.entries().size()), watch_,
        [&](std::byte* to) { DirectoryData::write(to, data.entries(), data.count(), proves); });
    return static_cast<bool>(pin_);
  }

  Tier* tier_ = nullptr;  // the tier that is being asked
  bool is_remote_ = false;
  MountMetadata& metadata_;
  DirectoryWatch watch_;
  std::string_view key_;
  const char* path_;
  bool has_asked_ = false, is_physical_ = false;
  std::uint64_t began_ns_ = 0;  // base::boot_ns
  base::Result<FileStat> stat_ = base::fail(0);
  Pin pin_;
};

Pin MountMetadata::read_from_tiers(std::string_view key, const char* path) {
  const bool has_tiers = !tiers_->is_empty() || !remote_->is_empty();
  if (!has_tiers || !times_.are_any_known() || !has_room_for(k_least_room)) return {};
  StoredListing stored(*this, key, path);
  if (!stored.ask(*tiers_, /*is_remote=*/false) && !stored.ask(*remote_, /*is_remote=*/true))
    return {};
  region_->stats().count(base::Counter::metadata_stored);
  return std::move(stored.pin());
}

}  // namespace cube::cache
