// One fetch that no program waits for yet. The caller does the I/O: it calls begin and accept,
// reads the bytes to room(), and calls publish. A program that opens the file in between waits for
// this fetch as for any flight. Thread safety: one thread at a time.
#pragma once

#include "cache/fill/cache_parts.h"

namespace cube::cache {

class BackgroundFill {
 public:
  // `parts` and `key` must outlive this object.
  BackgroundFill(CacheParts& parts, std::string_view key, bool use_ring);
  ~BackgroundFill() { give_up(); }
  BackgroundFill(const BackgroundFill&) = delete;
  BackgroundFill& operator=(const BackgroundFill&) = delete;

  enum class Begin : std::uint8_t {
    fetch,
    cached,   // RAM has the record, or another prefetch is fetching it
    demanded  // a program fetches the file now, or has just read it from the origin
  };
  Begin begin();

  // done: an existing record turned out to be current, or a tier had the bytes.
  RecordFill::Next accept(const FileAtOrigin& file);
  // Whether another node may have the file. Called before the file is opened.
  bool may_be_remote() const;
  enum class Remote : std::uint8_t {
    published,
    there,  // RAM has the file already
    look,   // only the origin's stat can tell whether the remote record is current
    absent,
    refused  // reason() says why
  };
  // Fetches the file from another node. `stat`: the origin's lstat of the path; null: the origin
  // was not asked. A file larger than `most_bytes` counts as absent.
  Remote take_remote(const FileStat* stat, std::uint64_t most_bytes);
  // Replaces accept() and publish() for a file that its origin puts into RAM itself
  // (OriginOpen::is_ahead). False: RAM already has this version of the file.
  bool wants(const FileStat& stat) { return !is_there(stat); }
  // False: RAM does not have the record.
  bool take_filled();
  std::byte* room() const { return fill_.room(); }
  // Notes that the bytes in room() were checked against this hash.
  void note_hash(std::uint64_t data_hash) { fill_.note_hash(data_hash); }
  bool wants_second_look() const { return fill_.wants_second_look(); }
  // False: reason() says why not.
  bool publish();
  std::uint64_t remote_bytes() const {
    return remote_bytes_;
  }  // bytes of the record that was published or refused
  // Ends the flight, because the file is fetched in another way. Afterwards no process of any node
  // waits for this fetch, and the key is no longer used.
  void give_up();
  void lose_room() { fill_.lose_room(); }

  base::Counter reason() const { return fill_.reason(); }
  // Whether a program has also fetched the file since begin().
  bool was_fetched_twice() const { return fetched_twice_; }
  // True if begin() found the file in the ring, where a program had already read it. The ring then
  // keeps the file until it is read again.
  bool is_wanted_again() const { return static_cast<bool>(wanted_again_); }
  // The record's place; set after publish(), or if is_wanted_again(). The place is valid as long as
  // this object lives.
  const RamTier::PlaceInRegion& place() const { return place_; }

 private:
  class FromRemote;
  // Whether RAM has a record of this version of the file.
  bool is_there(const FileStat& stat);
  void note_published(const Pin& pin);
  Remote absent();

  CacheParts* parts_;
  std::string_view key_;
  std::uint64_t hash_;
  bool use_ring_;
  SingleFlight::Ticket ticket_;
  RecordFill fill_;
  RamTier::PlaceInRegion place_;
  Pin wanted_again_;
  bool fetched_twice_ = false;
  bool has_asked_remote_ = false;
  bool is_to_be_proven_ = false;  // the origin must be asked by an open
  std::uint64_t remote_bytes_ = 0;
  std::uint64_t changes_ =
      0;  // RegionHeader::file_changes, before the origin is asked for the stat
};

}  // namespace cube::cache
