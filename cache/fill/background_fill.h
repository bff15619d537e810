// One fetch of a file that no program waits for yet. The caller does the I/O: it calls begin(),
// opens the file, calls accept(), reads the bytes to room(), and calls publish(). A program that
// opens the file during this time waits for the fetch, as for any flight. Thread safety: one thread
// at a time.
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

  // `done`: RAM already has a current record, or a tier had the bytes.
  RecordFill::Next accept(const FileAtOrigin& file);
  // Whether another node may have the file. Call it before the file is opened.
  bool may_be_remote() const;
  enum class Remote : std::uint8_t {
    published,
    there,  // RAM has the file already
    look,   // the caller must first ask the origin for a stat
    absent,
    refused  // reason() says why
  };
  // Fetches the file from another node. `stat`: the origin's lstat of the path, or null if the
  // origin was not asked. A file larger than `most_bytes` counts as absent.
  Remote take_remote(const FileStat* stat, std::uint64_t most_bytes);
  // For a file that its origin puts into RAM itself (OriginOpen::is_ahead), wants() replaces
  // accept(), and take_filled() replaces publish(). False: RAM already has this version of the
  // file.
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
  // Ends the flight, for example because the file is fetched in another way. Afterwards no process
  // on any node waits for this fetch. The object no longer uses the key.
  void give_up();
  void lose_room() { fill_.lose_room(); }

  base::Counter reason() const { return fill_.reason(); }
  // Whether a program has also fetched the file since begin().
  bool was_fetched_twice() const { return fetched_twice_; }
  // True if begin() found that a program had already read the file from the ring. The ring then
  // keeps the file until a program reads it again.
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
  bool is_to_be_proven_ = false;  // only an open at the origin proves the record
  std::uint64_t remote_bytes_ = 0;
  std::uint64_t changes_ = 0;  // RegionHeader::file_changes, loaded before the stat
};

}  // namespace cube::cache
