// Packs a directory tree. The builder walks the tree in the order of a pack, fetches many entries
// at a time, and passes them to the writer in this order. An entry that cannot be packed is
// reported and left out, and the listing of its directory is marked as incomplete. Thread safety:
// one thread may call the functions. For requests to the origin, the builder has its own threads
// (Crew).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cache/pack/make/pack_writer.h"
#include "cache/pack/make/tree_fetch.h"
#include "cache/pack/make/tree_names.h"
#include "cache/pack/make/tree_paths.h"

namespace cube::cache {

enum class PackSkip : std::uint8_t {
  missing,
  not_a_file,
  too_long,
  too_deep,
  unreadable,
  changing,
  below_no_directory,
  no_path
};
// The reason as text, such as "unreadable".
std::string_view name_of(PackSkip reason);

struct PackBuild {
  std::string root, file;
  const TreePaths* list = nullptr;  // the paths to pack; null: the whole tree
  unsigned threads = 16;
  std::string scratch = "/var/tmp";
  std::size_t most_waiting =
      32 << 20;  // bytes of directory records that may wait to be written together
  // Called for each entry that is left out. `error` is an errno, or 0. `path` is relative to the
  // root.
  std::function<void(PackSkip reason, std::string_view path, int error)> skipped =
      [](PackSkip, std::string_view, int) {};
  // Called regularly. Returns false if the builder must stop now; a later run can then continue the
  // work.
  std::function<bool(const PackHeader& so_far)> go_on = [](const PackHeader&) { return true; };
};

class PackBuilder {
 public:
  enum class End : std::uint8_t { done, stopped, failed };
  explicit PackBuilder(const PackBuild& build) : build_(build) {}
  // After `failed`, `why` is a sentence that explains the failure.
  End run(std::string& why);
  const PackHeader& header() const { return writer_->header(); }  // valid after `done`
  std::uint64_t resumed() const { return resumed_; }  // entries taken over from an earlier run

 private:
  // Each level holds an open fd, so this limits the number of open fds.
  static constexpr std::size_t k_most_levels = 256;
  struct DirectoryRecord {
    std::string path;
    FileStat stat{};
    std::string listing;
    // The memory that this record takes. Includes the object itself, which matters if there are
    // millions of empty directories.
    std::size_t bytes() const { return sizeof *this + path.size() + listing.size(); }
  };
  struct Level {
    base::UniqueFd fd;
    std::string path;
    FileStat stat{};
    TreeNames names;
    std::size_t at = 0;
    TreePaths::Range range;
    bool is_whole = true;  // the whole directory is packed, not only the paths of a list
    // Finished records of subdirectories. All of them are written together, so that a reader needs
    // only few requests to read them.
    std::vector<DirectoryRecord> done;
  };

  bool prepare();
  bool enter_root();
  bool enter(std::size_t i);
  bool add_level(Level level);
  bool leave();
  bool write_done(Level& level);
  bool write(const DirectoryRecord& directory);
  bool take_batch();
  bool take(std::size_t i, const std::string& path, FetchedEntry entry, bool& has_to_stop);
  bool take_large(std::size_t i, const std::string& path);
  bool add(std::size_t i, std::string_view path, RecordKind kind, const FetchedEntry& entry);
  void list_names(Level& level) const;
  void find_types(Level& level);
  void refuse_below(const Level& level, const std::string& path);
  void skip(PackSkip reason, std::string_view path, int error = 0) {
    build_.skipped(reason, path, error);
  }
  FileStat packed(const FileStat& stat);
  bool check(const base::Result<void>& written);
  bool fail(std::string why);

  PackBuild build_;
  std::unique_ptr<PackWriter> writer_;
  std::unique_ptr<Crew> crew_;
  std::vector<Level> levels_;
  std::vector<std::uint64_t> devices_;
  std::uint64_t resumed_ = 0;
  std::size_t done_bytes_ = 0;  // bytes of the directories that wait to be written
  std::string why_;
};

}  // namespace cube::cache
