// Corrects what memory believes of a path by what the kernel has just said of it: records,
// listings, negative entries, gathered stats and link targets that contradict the answer are
// dropped, for all processes of the node, before the program sees it. An answer that agrees with
// memory changes nothing. Keys are absolute and normalised. Asks the origin only once an answer has
// been found to contradict, and then for directories that the kernel has just walked through.
// Thread safety: all of it; async-signal-safe, no allocation.
#pragma once

#include <string_view>

#include "cache/changes.h"
#include "cache/metadata/mount_metadata.h"

namespace cube::cache {

// An answer of the kernel about a name.
struct Told {
  // Kinds that the name may have after the answer, as bits.
  enum Kind : std::uint8_t { k_directory = 1, k_link = 2, k_other = 4, k_any = 7 };
  std::uint8_t kinds = k_any;  // 0: the name is absent
  // False: the name itself may be absent. So it is of ENOTDIR.
  bool is_there = true;
  // The call does not follow a link at the end of the path.
  bool no_follow = false;
  // The name may be there for all that: the call has another path, or a file names an interpreter.
  bool is_in_doubt = false;
  // ENOTEMPTY.
  bool has_entries = false;
};

class Corrections {
 public:
  Corrections(CacheParts& parts, Changes& changes, MountMetadata& metadata)
      : parts_(parts), changes_(changes), metadata_(metadata) {}

  // Nothing is known that an answer could contradict.
  bool has_nothing() const { return changes_.is_empty() && !metadata_.are_any(); }
  void learn(std::string_view key, const Told& told);
  // The name is there, with this stat.
  void learn_stat(std::string_view key, const FileStat& stat, bool no_follow);
  // It is a link with this target.
  void learn_target(std::string_view key, std::string_view target);
  // The call may have failed because of the name or of its directory, and does not tell why
  // (EACCES, EROFS). A negative entry is revalidated before it is used again.
  void doubt_negative_entries(std::string_view key);
  // A directory on the way to the name may be absent, or be no directory. False: all of them are
  // there, or memory knows nothing of the name.
  bool learn_way_is_broken(std::string_view key);
  // The path by which memory lists this directory, in room for PATH_MAX bytes: its length, or 0.
  std::size_t path_of_listed(const FileStat& directory, char* path) const;

 private:
  struct Listed {
    Pin listing;
    std::uint8_t type = 0;  // as dirent has it
  };
  Pin listing_of(std::string_view directory) const;
  // The listing that has the name.
  Listed listed_name(std::string_view key) const;
  // The listing by which memory would call the name absent. `is_certain`: else it only does not
  // list it.
  Pin prover_of_negative_entries(std::string_view key, bool& is_certain) const;
  bool drop_negative_entries(std::string_view key);
  bool correct_presence(std::string_view key, const Told& told);
  bool correct_way(std::string_view way);
  bool believes_directory(std::string_view key) const;
  void drop(const Record& listing);
  void drop_name(std::string_view key, const FileStat* stat);
  bool find_broken_way(std::string_view key);
  // The key that memory comes to by links at the end of this one, in room for PATH_MAX bytes.
  // Empty: there is none.
  std::string_view follow(std::string_view key, char* room);

  CacheParts& parts_;
  Changes& changes_;
  MountMetadata& metadata_;
};

}  // namespace cube::cache
