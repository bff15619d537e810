// Names of mounts that memory answers: listings of directories, stats of their entries, and names
// that they do not have. The records lie in the region, for all processes of the node that have the
// same view. `Says::unknown` means that the kernel is to be asked; nothing here is ever an error of
// the origin.
//
// Freshness: what a directory holds was looked at less than a second ago (CUBESHIM_METADATA_TTL),
// by a stat of the directory at least, and no process of the node has changed it since. A stat
// holds for a tenth of the file's age, 1 to 60 s, unless the file is changed through the shim. A
// directory that was changed less than two seconds before it was read is not kept, for the clock of
// the origin may hide another change. Where the times of directories are not known to be kept
// (directory_times.h), it is read again. Search permission: who has a record's view has opened the
// directory, and passed through it. Limits: records of one directory are at most
// CUBESHIM_METADATA_RAM in all; nothing is kept with packs, with CUBESHIM_CONSISTENCY=open, or in
// mode real. Thread safety: all of it. Look-ups are async-signal-safe and allocate nothing.
#pragma once

#include <string_view>

#include "cache/base/hash.h"
#include "cache/base/settings/config.h"
#include "cache/base/unique_fd.h"
#include "cache/metadata/directory_times.h"
#include "cache/metadata/negative_entry_trial.h"
#include "cache/origin/known_stats.h"
#include "cache/record/directory_data.h"
#include "cache/record/listing.h"
#include "cache/region/ram/ram_tier.h"
#include "cache/region/single_flight.h"
#include "cache/tier/tier.h"

namespace cube::cache {

class MountMetadata final : public KnownStats {
 public:
  enum class Says : std::uint8_t { unknown, absent, present };

  // `remote`: tiers of other nodes, which are asked after the others.
  MountMetadata(Region& region, RamTier& ram, const Tiers& tiers, const Tiers& remote,
                const base::Config& config);
  // Before anybody asks. Some prefixes are no mounts.
  void switch_off() { is_on_ = false; }
  bool is_on() const { return is_on_; }
  // For one more record of so many bytes. Says yes rather too often.
  bool has_room_for(std::uint64_t bytes) const;

  // Has any process of the node kept a listing? Says yes rather too often, as soon as one has begun
  // to read a directory.
  bool are_any() const {
    return region_->header().has_metadata.load(std::memory_order_seq_cst) != 0;
  }
  // The listing of its directory, by this path, has the name, and for this file. It may be too old
  // to be shown.
  bool was_listed(std::string_view key, const FileStat& file) const;

  // Somebody may have changed names without telling: this job revalidates each listing before it
  // uses it again.
  void doubt();

  // Keys are absolute and normalised. `no_follow`: the stat of a link itself. `with_mount`: the
  // mount id is wanted, too. A link at the end is not followed: where `no_follow` is not set, it is
  // unknown (real_path).
  Says stat(std::string_view key, bool no_follow, bool with_mount, FileStat& stat);
  // A path that memory has found, in room for PATH_MAX bytes. Without a zero behind it.
  struct FoundPath {
    char* text = nullptr;
    std::size_t length = 0;
    std::string_view view() const { return {text, length}; }
  };
  // See known_stats.h. How long the stat may be shown to programs does not matter here.
  std::optional<Known> known_stat(std::string_view key, std::uint64_t since_ns) const override;
  // The target of a link. Present, and nothing in it: the name is no link.
  Says read_link(std::string_view key, FoundPath& target);
  // The origin has just given this stat, or this target, for the name itself, or for what a link
  // there leads to. What was gathered before is void if it differs. correct_target: true if it did.
  void correct_stat(std::string_view key, const FileStat& stat);
  bool correct_target(std::string_view key, std::string_view target);
  // The real path, links at its end followed. `by_link`: unknown if no link is at its end, and the
  // place that the last one leads to is not looked at. Unknown: memory knew no more at `real`.
  enum class Leads : std::uint8_t { anywhere, by_link };
  Says real_path(std::string_view key, Leads leads, FoundPath& real);
  // Is there a listing of its directory? Then no directory above that has told of its absence.
  bool has_listing_beside(std::string_view key) const;
  // A directory on the way to it lacks the name. The origin is asked at most where it would say so,
  // and never about what is there.
  bool is_absent(std::string_view key);

  // A copy of the listing, to be ended by release(). Else `fd` is the directory, open for reading
  // and at its begin, or -1; `is_long`: it has more entries than a program should wait for.
  struct Listed {
    Listing* listing = nullptr;
    base::UniqueFd fd;
    bool is_long = false;
    // The origin was asked, or another process of the node was waited for; so it was for enough
    // directories before that threads for those to come are worth having.
    bool was_worth_listing_ahead = false;
  };
  // May read the directory at the origin. `path`: the key with a terminating zero.
  Listed list(std::string_view key, const char* path);

  // A look that the kernel has to answer. True: many were in one directory, whose stats are worth
  // gathering, and so many in all that threads for that are worth having.
  bool note_miss(std::string_view key);
  // The same of an open that has waited for the file's stat, to prove a record. Never true in a
  // region that is too small.
  bool note_look(std::string_view key);

  // A look that was answered. True: it is the first one of this process in this directory, as far
  // as it remembers.
  bool is_first_in_directory(std::string_view key);

  // For who gathers (stat_gather.h): the listing, as fresh as any; read at the origin if need be.
  Pin listing_of(std::string_view key, const char* path);
  // A program will list this directory next. No-op if somebody reads it, or has.
  void list_ahead(std::string_view key, const char* path);
  // A fresh listing has the name, and it is a regular file.
  bool is_file(std::string_view key);
  Pin stats_of(std::string_view key) const;
  // The right to gather the stats of this directory, for one process of the node. False: another is
  // at it.
  bool begin_gather(std::string_view key, SingleFlight::Ticket& flight);
  // Must the server itself be asked for the stat of this name? It may prove a record (known_stat),
  // or there is a bound to how old it may be. Else the mount's own memory will do, as it would for
  // the program, and a listing may have filled that for all names.
  bool stat_is_proof(std::string_view key) const;
  bool is_current(const StatTable::Entry& entry) const;
  // Nothing has changed the file through the shim since the look.
  bool is_untouched(const StatTable::Entry& entry) const;
  // A record that is published only if `watch` has seen no change. It takes the place of the one
  // before. `write` gets the room for its data.
  template <typename Watch, typename Write>
  Pin publish(RecordContent& content, std::uint64_t bytes, const Watch& watch, Write&& write);
  Region& region() const { return *region_; }

 private:
  // The listing, if it is fresh enough for what a directory holds; `again`: this process has asked
  // before.
  Pin fresh_listing(std::string_view key, bool again);
  Pin directory(std::string_view key) const;
  // `is_physical`: an error if there is a link on the way to it.
  static base::Result<FileStat> stat_of_directory(const char* path, bool is_physical);
  bool is_still_right(const Record& record);
  bool is_young(const Record& record, bool again) const;
  std::uint64_t doubted_ns() const {
    return region_->job_row(region_->own_job()).metadata_doubted_ns.load(std::memory_order_relaxed);
  }
  // May it be shown? The origin is asked if the last look is too old.
  bool holds(const Record& record, bool again) {
    return is_young(record, again) || is_still_right(record);
  }
  // Has this process asked this before?
  bool asks_again(std::string_view key, std::uint64_t kind);
  Says negative_unless_changed(std::string_view key, Pin&& directory, const DirectoryData& data);
  Says look_above(std::string_view directory);
  struct Entry {
    Says says = Says::unknown;
    Pin directory;
    DirectoryData::Entry entry;
  };
  Entry entry_of(std::string_view key);
  // The same by the listing of its directory alone, however old that is.
  Entry listed_entry(std::string_view key) const;
  // The entry's stat by the table of its directory, if it is fresh. The name may be another file's
  // by now (is_shown).
  struct EntryStat {
    Pin table;
    const StatTable::Entry* entry = nullptr;
  };
  EntryStat stat_of(std::string_view key, const Entry& entry) const;
  // The same, however old it is.
  EntryStat gathered_stat(std::string_view key, const Entry& entry) const;
  // When the origin was asked for what the path of the entry leads to. Threads that gather stats
  // open the directory first, and go on in it if it is replaced: a stat of theirs holds for the
  // path as it was when the first thread began.
  static std::uint64_t looked_ns(const EntryStat& known);
  bool is_shown(const EntryStat& stat, const Entry& entry);
  Says go_on(FoundPath& path, Leads leads, bool& is_link);
  Says directory_itself(std::string_view key, bool no_follow, bool with_mount, FileStat& stat);
  // The listing, from the origin. Nothing: it is not kept, and the fd, if there is one, stands at
  // the begin.
  struct Read {
    base::UniqueFd fd;
    bool is_long = false;  // it has entries of more bytes than that
  };
  Pin still_listed(const RecordContent& content, std::span<const std::byte> entries) const;
  Pin read(std::string_view key, const char* path, std::uint64_t most_bytes, Read& read);
  // The listing that an earlier job has left there, if one look at the directory proves it.
  class StoredListing;
  Pin read_from_tiers(std::string_view key, const char* path);

  // `beside_files`: the bytes of it that lie beside the files, where it stays.
  base::Result<RamTier::Reservation> reserve(std::size_t path_length, std::uint64_t bytes,
                                             std::uint64_t& beside_files);
  // Records of names have segments of their own, which are used anew. A small region has one to
  // spare only where its opens wait for stats.
  std::uint32_t most_segments() const;

  static constexpr std::uint64_t k_least_room = 4096;
  static constexpr std::size_t k_asked = 1024, k_missed = 1024, k_no_room = 64;

  Region* region_;
  RamTier* ram_;
  const Tiers* tiers_;
  const Tiers* remote_;
  SingleFlight flights_;
  bool is_on_;
  base::MetadataTtl ttl_;
  std::uint64_t most_ttl_ns_;   // of CUBESHIM_CONSISTENCY
  std::uint64_t job_start_ns_;  // base::boot_ns
  std::uint64_t most_bytes_;    // of the region, for names
  NegativeEntryTrial trial_;
  DirectoryTimes times_;
  std::atomic<std::uint64_t> asked_[k_asked] = {};    // hashes of absent names and of listings
  std::atomic<std::uint64_t> entered_[k_asked] = {};  // hashes of directories
  std::atomic<std::uint64_t> last_entered_{0};
  std::atomic<std::uint32_t> misses_{0}, lists_read_{0};
  std::atomic<bool> opens_wait_{false};  // note_look has said so
  std::atomic<std::uint64_t> missed_[k_missed] =
      {};  // hash of a directory:48 | looks that missed:16
  std::atomic<std::uint64_t> no_room_[k_no_room] =
      {};  // hashes of directories with more entries than all names may take
};

template <typename Watch, typename Write>
Pin MountMetadata::publish(RecordContent& content, std::uint64_t bytes, const Watch& watch,
                           Write&& write) {
  content.data_size = bytes;
  std::uint64_t beside_files = 0;
  auto reservation = reserve(content.path.size(), bytes, beside_files);
  if (!reservation) return {};
  // Not before there is room: its own segment may be the one to reclaim.
  const Pin former = ram_->find_of_kind(content.kind, content.path, base::hash_path(content.path));
  write(reservation->data());
  if (!watch.is_unchanged()) return {};
  auto pin = ram_->publish(*reservation, content);
  if (!pin) return {};
  region_->header().metadata_bytes.fetch_add(beside_files, std::memory_order_relaxed);
  if (!watch.is_unchanged() || !ram_->confirm(std::move(*reservation), *pin)) {
    ram_->mark_record_stale(**pin);
    return {};
  }
  // A look-up would find either of the two.
  if (former) ram_->mark_record_stale(*former);
  return std::move(*pin);
}

}  // namespace cube::cache
