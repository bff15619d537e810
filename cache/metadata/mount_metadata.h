// Answers metadata calls about mounts from memory: listings of directories, stats of their entries,
// targets of links, and negative entries. The records lie in the region, and serve all processes of
// the node that have the same view. If the answer is `Says::unknown`, the caller must ask the
// kernel. No function reports errors of the origin.
//
// Freshness: a listing is served if it was read or revalidated less than CUBESHIM_METADATA_TTL
// (default: 1 s) ago and no process of the node has changed the directory since. A revalidation is
// a stat of the directory. If the mount is not known to keep the times of directories
// (directory_times.h), the directory is read again as well. The stat of an entry is served for a
// tenth of the file's age, but at least for 1 s and at most for 60 s. A change of the file through
// the shim ends this time. If a directory was changed less than two seconds before it was read, its
// listing is not kept: the origin's clock may be too coarse to show another change. Search
// permission: a listing is kept only if the process that has read it may search the directory;
// other processes with the same view need no check. Limits: all metadata records together take at
// most CUBESHIM_METADATA_RAM. Nothing is kept if a prefix is a pack or a bucket, with
// CUBESHIM_CONSISTENCY=open, or in mode `real`. Thread-safe. Lookups are async-signal-safe and
// allocate nothing.
#pragma once

#include <string_view>

#include "cache/base/hash.h"
#include "cache/base/settings/config.h"
#include "cache/base/unique_fd.h"
#include "cache/metadata/directory_times.h"
#include "cache/metadata/negative_entry_proof.h"
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

  // `remote`: the tiers on other nodes, which are asked after `tiers`.
  MountMetadata(Region& region, RamTier& ram, const Tiers& tiers, const Tiers& remote,
                const base::Config& config);
  // If a prefix is not a mount, call this before any other function.
  void switch_off() { is_on_ = false; }
  bool is_on() const { return is_on_; }
  // Whether there seems to be room for one more record of this many bytes.
  bool has_room_for(std::uint64_t bytes) const;

  // Whether any process of the node may have kept a listing. True as soon as one has begun to read
  // a directory.
  bool are_any() const {
    return region_->header().has_metadata.load(std::memory_order_seq_cst) != 0;
  }
  // Whether the listing of the key's directory contains the key's name with the inode of `file`.
  // Uses the listing even if it is too old to be served.
  bool was_listed(std::string_view key, const FileStat& file) const;

  // Call it when files may have been changed unnoticed. Afterwards, this job uses a listing only
  // after it has revalidated the listing.
  void doubt();

  // The stat of an absolute, normalized key. If the key ends in a link, the stat is that of the
  // link if `no_follow` is true; otherwise the result is `unknown` (see real_path). `with_mount`:
  // the caller needs the mount id, too.
  Says stat(std::string_view key, bool no_follow, bool with_mount, FileStat& stat);
  // A path in a buffer of the caller. `text` must have room for PATH_MAX bytes. No zero follows the
  // path.
  struct FoundPath {
    char* text = nullptr;
    std::size_t length = 0;
    std::string_view view() const { return {text, length}; }
  };
  // Implements KnownStats (known_stats.h). The stat may be too old to be served to programs.
  std::optional<Known> known_stat(std::string_view key, std::uint64_t since_ns) const override;
  // The target of a link. `present` with an empty target: the key is not a link.
  Says read_link(std::string_view key, FoundPath& target);
  // correct_stat compares the gathered stat of the key with a stat that the origin has just
  // returned for the key, or for the target of its link. If the gathered stat differs, it is not
  // used again. correct_target does the same for the target of the key's link, and returns whether
  // the gathered target differed.
  void correct_stat(std::string_view key, const FileStat& stat);
  bool correct_target(std::string_view key, std::string_view target);
  // The path to which the links at the end of the key lead. `by_link`: if the key does not end in a
  // link, the result is `unknown`. The final target is not revalidated. If the result is `unknown`,
  // `real` is the path after the links that memory could follow.
  enum class Leads : std::uint8_t { anywhere, by_link };
  Says real_path(std::string_view key, Leads leads, FoundPath& real);
  // Whether memory has a listing of the key's directory. If it has, a negative entry for the key
  // comes from this listing, and otherwise from the listing of a directory further up.
  bool has_listing_beside(std::string_view key) const;
  // Whether a negative entry covers the key: the listing of its directory, or of a directory
  // further up, lacks the next component of the key. The origin is asked only to revalidate a
  // listing that lacks the component, and never for a path that exists.
  bool is_absent(std::string_view key);

  // The result of list(). `listing` is a copy that the caller must end by release(). If it is null,
  // `fd` is the directory, open for reading at offset 0, or -1. `is_long`: the directory has more
  // entries than a program should wait for.
  struct Listed {
    Listing* listing = nullptr;
    base::UniqueFd fd;
    bool is_long = false;
    bool is_from_origin = false;  // the directory was just opened at the origin
    // True if the program has waited for this listing, and has waited for many listings before.
    // Threads should then list the next directories ahead.
    bool was_worth_listing_ahead = false;
  };
  // The listing of a directory, read at the origin if needed. `path`: the key with a terminating
  // zero.
  Listed list(std::string_view key, const char* path);

  // Notes a stat that the kernel must answer. Returns true if threads should gather the stats of
  // the directory's entries. The kernel must have answered several stats in the directory, and many
  // in the process.
  bool note_miss(std::string_view key);
  // Like note_miss, but for an open that has waited for the stat that proves its record. Always
  // returns false if the region is too small.
  bool note_look(std::string_view key);

  // Notes a stat that memory has answered. Returns true if this is the process's first stat in the
  // directory, as far as the process remembers.
  bool is_first_in_directory(std::string_view key);

  // A fresh listing for StatGather, read at the origin if needed.
  Pin listing_of(std::string_view key, const char* path);
  // Reads a directory that a program will list next. Does nothing if another process reads the
  // directory, or if a fresh listing exists.
  void list_ahead(std::string_view key, const char* path);
  // Whether a fresh listing contains the key's name as a regular file.
  bool is_file(std::string_view key);
  Pin stats_of(std::string_view key) const;
  // Takes the flight for gathering the stats of this directory. False: another process of the node
  // has that flight.
  bool begin_gather(std::string_view key, SingleFlight::Ticket& flight);
  // Whether the stat of this key must come from the server, because the stat may prove a record
  // (known_stat), or because its age is limited. If not, the mount's attribute cache may answer, as
  // it would for the program. The read of a directory may have filled this cache for all its
  // entries.
  bool stat_is_proof(std::string_view key) const;
  bool is_current(const StatTable::Entry& entry) const;
  // Whether the file is unchanged through the shim since the stat was taken.
  bool is_untouched(const StatTable::Entry& entry) const;
  // Publishes a record that replaces the previous record of its path. Publishes nothing if `watch`
  // has seen a change. `write` must write the data to the room.
  template <typename Watch, typename Write>
  Pin publish(RecordContent& content, std::uint64_t bytes, const Watch& watch, Write&& write);
  Region& region() const { return *region_; }

 private:
  // The listing, revalidated if it is not fresh. `again`: this process has asked for the listing
  // before. Empty: there is no listing, or it is outdated.
  Pin fresh_listing(std::string_view key, bool again);
  Pin directory(std::string_view key) const;
  // `is_physical`: fails if the path to the directory contains a link.
  static base::Result<FileStat> stat_of_directory(const char* path, bool is_physical);
  bool is_still_right(const Record& record);
  bool is_young(const Record& record, bool again) const;
  std::uint64_t doubted_ns() const {
    const auto& of_job = region_->job_row(region_->own_job()).metadata_doubted_ns;
    return std::max(of_job.load(std::memory_order_relaxed),
                    region_->header().doubted_ns.load(std::memory_order_relaxed));
  }
  // Whether the record may be served. Revalidates the record if the last revalidation is too old.
  bool holds(const Record& record, bool again) {
    return is_young(record, again) || is_still_right(record);
  }
  // The kinds of questions. asks_again() returns whether this process has asked the same kind of
  // question about the same key before.
  static constexpr std::uint64_t k_kind_absent = 1, k_kind_listing = 2;
  bool asks_again(std::string_view key, std::uint64_t kind);
  Says negative_unless_changed(std::string_view key, Pin&& directory, const DirectoryData& data);
  Says look_above(std::string_view directory);
  struct Entry {
    Says says = Says::unknown;
    Pin directory;
    DirectoryData::Entry entry;
  };
  Entry entry_of(std::string_view key);
  // Like entry_of, but uses only the listing of the key's directory, and does not check its age.
  Entry listed_entry(std::string_view key) const;
  // The entry's stat from the table of its directory, if the stat is fresh. The name may refer to
  // another file by now (see is_shown).
  struct EntryStat {
    Pin table;
    const StatTable::Entry* entry = nullptr;
  };
  EntryStat stat_of(std::string_view key, const Entry& entry) const;
  // Like stat_of, but returns the stat even if it is not fresh.
  EntryStat gathered_stat(std::string_view key, const Entry& entry) const;
  // The latest time at which the entry's path is known to have led to the entry's file. Threads
  // that gather stats open the directory first, and keep using it even if its path later names
  // another directory. So this time is not later than the start of the gathering.
  static std::uint64_t looked_ns(const EntryStat& known);
  bool is_shown(const EntryStat& stat, const Entry& entry);
  Says go_on(FoundPath& path, Leads leads, bool& is_link);
  Says directory_itself(std::string_view key, bool no_follow, bool with_mount, FileStat& stat);
  // The further results of read(). If the listing is not kept, `fd` is the directory at offset 0,
  // or -1.
  struct Read {
    base::UniqueFd fd;
    bool is_long = false;  // the entries take more than `most_bytes`
  };
  // Begins the flight of reading a directory. If another read has just ended, returns its listing.
  // `again` is as for fresh_listing().
  Pin begin_reading(std::string_view key, bool again, SingleFlight::Ticket& flight);
  Pin still_listed(const RecordContent& content, std::span<const std::byte> entries) const;
  Pin read(std::string_view key, const char* path, std::uint64_t most_bytes, Read& read);
  // The listing that an earlier job has left in a tier, if a single stat of the directory proves
  // it.
  class StoredListing;
  Pin read_from_tiers(std::string_view key, const char* path);

  // `beside_files`: set to the size of the record if the record lies in a segment of files. There,
  // its bytes are not reclaimed on their own.
  base::Result<RamTier::Reservation> reserve(std::size_t path_length, std::uint64_t bytes,
                                             std::uint64_t& beside_files);
  // The number of segments that metadata records may have for themselves. These segments are
  // reclaimed separately. A small region has such a segment only if opens wait for stats.
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
  std::uint64_t most_ttl_ns_;   // the limit of CUBESHIM_CONSISTENCY
  std::uint64_t job_start_ns_;  // base::boot_ns
  std::uint64_t most_bytes_;    // the most bytes of metadata
  NegativeEntryProof proof_;
  DirectoryTimes times_;
  std::atomic<std::uint64_t> asked_[k_asked] = {};    // hashes of negative entries and of listings
  std::atomic<std::uint64_t> entered_[k_asked] = {};  // hashes of directories
  std::atomic<std::uint64_t> last_entered_{0};
  std::atomic<std::uint32_t> misses_{0}, lists_read_{0};
  std::atomic<bool> opens_wait_{false};  // set by note_look()
  std::atomic<std::uint64_t> missed_[k_missed] =
      {};  // hash of a directory:48 | stats that missed:16
  std::atomic<std::uint64_t> no_room_[k_no_room] =
      {};  // hashes of directories whose entries alone exceed the room for all metadata
};

template <typename Watch, typename Write>
Pin MountMetadata::publish(RecordContent& content, std::uint64_t bytes, const Watch& watch,
                           Write&& write) {
  content.data_size = bytes;
  std::uint64_t beside_files = 0;
  auto reservation = reserve(content.path.size(), bytes, beside_files);
  if (!reservation) return {};
  // Looks up the previous record only after reserve(), because reserve() may reclaim the segment of
  // this record.
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
  // Without this mark, lookups could still find the previous record.
  if (former) ram_->mark_record_stale(*former);
  return std::move(*pin);
}

}  // namespace cube::cache
