// Corrects memory if it contradicts an answer that the kernel has just given about a path.
// Before the program sees the answer, everything in memory that contradicts it is dropped for all
// processes of the node. This includes records, listings, negative entries, gathered stats and link
// targets. An answer that agrees with memory changes nothing. Keys are absolute and normalized. The
// origin is asked only if the answer contradicts memory, and only about directories that the kernel
// has just walked through. Thread-safe and async-signal-safe; allocates nothing.
#pragma once

#include <string_view>

#include "cache/changes.h"
#include "cache/metadata/mount_metadata.h"

namespace cube::cache {

// An answer of the kernel about a path.
struct Told {
  // The kinds that the path can have according to the answer, as bits.
  enum Kind : std::uint8_t { k_directory = 1, k_link = 2, k_other = 4, k_any = 7 };
  std::uint8_t kinds = k_any;  // 0: the path does not exist
  // False: the path may not exist, for instance after ENOTDIR.
  bool is_there = true;
  // The call does not follow a final link.
  bool no_follow = false;
  // The path may exist despite the error, which may concern the call's second path or the file's
  // interpreter.
  bool is_in_doubt = false;
  // The directory is not empty (ENOTEMPTY).
  bool has_entries = false;
};

class Corrections {
 public:
  Corrections(CacheParts& parts, Changes& changes, MountMetadata& metadata)
      : parts_(parts), changes_(changes), metadata_(metadata) {}

  // Whether memory holds nothing that an answer could contradict.
  bool has_nothing() const { return changes_.is_empty() && !metadata_.are_any(); }
  void learn(std::string_view key, const Told& told);
  // The path exists and has this stat.
  void learn_stat(std::string_view key, const FileStat& stat, bool no_follow);
  // The path is a link with this target.
  void learn_target(std::string_view key, std::string_view target);
  // The call failed with EACCES or EROFS. The error does not say whether the path or its directory
  // caused it, so a negative entry for the path is revalidated before its next use.
  void doubt_negative_entries(std::string_view key);
  // A parent of the path may be missing, or may not be a directory. Returns false if all parents
  // are directories. If memory has nothing about the path, returns true without a look.
  bool learn_way_is_broken(std::string_view key);
  // Writes the path under which memory lists this directory to `path`, which has room for PATH_MAX
  // bytes. Returns its length, or 0.
  std::size_t path_of_listed(const FileStat& directory, char* path) const;

 private:
  struct Listed {
    Pin listing;
    std::uint8_t type = 0;  // d_type of dirent
  };
  Pin listing_of(std::string_view directory) const;
  // The listing that contains the path's last component.
  Listed listed_name(std::string_view key) const;
  // The listing that serves as a negative entry for the path. `is_certain` is true: a name that the
  // listing lacks does not exist. False: a lookup may still find the name.
  Pin prover_of_negative_entries(std::string_view key, bool& is_certain) const;
  bool drop_negative_entries(std::string_view key);
  bool correct_presence(std::string_view key, const Told& told);
  bool correct_way(std::string_view way);
  bool believes_directory(std::string_view key) const;
  void drop(const Record& listing);
  void drop_name(const Record& file, bool is_same_file);
  bool find_broken_way(std::string_view key);
  // Follows final links of the key as long as memory knows their targets. The result lies in
  // `room`, which holds PATH_MAX bytes. Empty: the key does not end in a known link.
  std::string_view follow(std::string_view key, char* room);

  CacheParts& parts_;
  Changes& changes_;
  MountMetadata& metadata_;
};

}  // namespace cube::cache
