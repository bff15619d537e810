// One fetch that nobody waits for yet, by somebody who does the I/O: begin -> accept -> (its bytes
// are read) -> publish. While it is under way, a program that opens the file waits for it as for
// another's fetch. Thread safety: one thread at a time.
#pragma once

#include "cache/fill/cache_parts.h"

namespace cube::cache {

class BackgroundFill {
 public:
  // Both must outlive this.
  BackgroundFill(CacheParts& parts, std::string_view key, bool use_ring);
  ~BackgroundFill() { give_up(); }
  BackgroundFill(const BackgroundFill&) = delete;
  BackgroundFill& operator=(const BackgroundFill&) = delete;

  enum class Begin : std::uint8_t {
    fetch,
    cached,   // it is there, or another prefetch brings it
    demanded  // a program fetches it now, or had it from the origin a moment ago
  };
  Begin begin();

  // done: an older record of it was found to be right still.
  RecordFill::Next accept(const FileAtOrigin& file);
  // Before the file is opened: do other nodes share what they have of its origin?
  bool may_be_remote() const;
  enum class Remote : std::uint8_t {
    published,
    there,  // it was there already, or is
    look,   // only the origin's stat can tell whether it is right
    absent,
    refused  // reason() says why
  };
  // From another node, by now. `stat`: what the origin says of the path, a link at its end not
  // followed; null: nobody has asked. `most_bytes`: a larger file is absent.
  Remote take_remote(const FileStat* stat, std::uint64_t most_bytes);
  std::byte* room() const { return fill_.room(); }
  // The bytes in room() were checked by this hash.
  void note_hash(std::uint64_t data_hash) { fill_.note_hash(data_hash); }
  bool wants_second_look() const { return fill_.wants_second_look(); }
  // False: reason() says why not.
  bool publish();
  std::uint64_t remote_bytes() const { return remote_bytes_; }  // of what was published, or refused
  // It is fetched in another way: nobody on any node waits for this one any more. The key is not
  // needed from then on.
  void give_up();
  void lose_room() { fill_.lose_room(); }

  base::Counter reason() const { return fill_.reason(); }
  // A program has fetched it too, since begin().
  bool was_fetched_twice() const { return fetched_twice_; }
  // It was cached in the ring and had been read, and is kept there until it is read again.
  bool is_wanted_again() const { return static_cast<bool>(wanted_again_); }
  // After publish, or of what is wanted again. It stays there while this lives.
  const RamTier::PlaceInRegion& place() const { return place_; }

 private:
  class FromRemote;
  // Is there a record of this version of the file already?
  bool is_there(const FileStat& stat);
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
  bool is_to_be_proven_ =
      false;  // another node has it, but only an open at the origin tells whether this process may
  std::uint64_t remote_bytes_ = 0;
  std::uint64_t changes_ =
      0;  // RegionHeader::file_changes, before the origin is asked for the stat
};

}  // namespace cube::cache
