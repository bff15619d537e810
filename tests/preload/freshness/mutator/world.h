// The tree at the origin, and its history: the object of each name, the content and the stat of
// each file, and for how long each was true. Only the driver changes the tree, without the library,
// through these methods. A state counts as true from before the system call that makes it until
// after the system call that ends it, because concurrent readers can see either state. Thread
// safety: none.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/preload/freshness/mutator/words.h"

namespace cube::mutator {

template <typename Value>
class Timeline {
 public:
  struct Entry {
    std::int64_t begin, made;  // before and after the call that made it true
    Value value;
    bool was_watched = false;  // readers were active at that time, and may have seen it half made
  };
  void add(std::int64_t begin, std::int64_t made, Value value, bool was_watched = false) {
    if (!entries_.empty() && entries_.back().value == value) return;
    entries_.push_back({begin, made, std::move(value), was_watched});
  }
  bool empty() const { return entries_.empty(); }
  const Value& now() const { return entries_.back().value; }
  std::size_t size() const { return entries_.size(); }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }
  const Entry& operator[](std::size_t i) const { return entries_[i]; }
  // Returns the time from which no reader could see entry `i` any more.
  std::int64_t gone(std::size_t i) const {
    return i + 1 < entries_.size() ? entries_[i + 1].made
                                   : std::numeric_limits<std::int64_t>::max();
  }
  // The entries that were true at a moment of [from, to].
  template <typename See>
  void each(std::int64_t from, std::int64_t to, See&& see) const {
    for (std::size_t i = entries_.size(); i-- > 0 && gone(i) >= from;) {
      if (entries_[i].begin <= to) see(i, entries_[i].value);
    }
  }
  // True if a reader that asked since `from` may have seen one of its entries half made.
  bool was_torn(std::int64_t from) const {
    return std::any_of(entries_.begin(), entries_.end(),
                       [&](const Entry& e) { return e.was_watched && e.made >= from; });
  }
  // True if one of its entries was made at a moment of [from, to].
  bool changes(std::int64_t from, std::int64_t to) const {
    return std::any_of(entries_.begin(), entries_.end(),
                       [&](const Entry& e) { return e.begin <= to && e.made >= from; });
  }

 private:
  std::vector<Entry> entries_;
};

enum class Kind : std::uint8_t { file, directory, link };

struct Object;
using Names = std::vector<std::string>;

struct Object {
  int id = 0;
  Kind kind = Kind::file;
  int fd = -1;  // O_PATH; -1: removed for good
  Timeline<Attributes> attributes;
  Timeline<Runs> content;                            // of a file
  std::map<std::string, Timeline<Object*>> entries;  // of a directory; null: no such name
  Timeline<Names> names;                             // of a directory
  std::string target;                                // of a link
  Object* child(const std::string& name) const {
    const auto found = entries.find(name);
    return found == entries.end() ? nullptr : found->second.now();
  }
};

class World {
 public:
  // Makes BASE/data, which readers see, and BASE/staging next to it.
  explicit World(const std::string& base);
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World();

  Object& root() { return *root_; }
  Object& staging() { return *staging_; }
  const std::vector<std::unique_ptr<Object>>& objects() const { return objects_; }
  // If true, readers ask questions while the next changes are made.
  void set_watched(bool is_watched) { is_watched_ = is_watched; }
  // `hold` is called with true before each write to a file that readers can reach, and with false
  // after it. A write first changes the time and then stores page after page, so a fetch in between
  // would keep a mixture (doc/SEMANTICS.md).
  void set_hold_mounts(std::function<void(bool)> hold) { hold_mounts_ = std::move(hold); }
  std::string staging_name() { return "s" + std::to_string(++last_name_); }
  std::uint32_t new_tag() { return ++last_tag_; }

  Object& make_file(Object& directory, const std::string& name, const Runs& runs);
  Object& make_directory(Object& directory, const std::string& name);
  Object& make_link(Object& directory, const std::string& name, const std::string& target);
  // Writes in place: replaces the words from `first` on with `runs`. The change time advances.
  void write(Object& file, std::uint64_t first, const Runs& runs, bool truncates_first);
  void truncate(Object& file, std::uint64_t words);
  void set_times(Object& object, std::int64_t modified_ns);
  void set_mode(Object& object, mode_t mode);
  void add_name(Object& file, Object& directory, const std::string& name);
  void rename(Object& from, const std::string& name, Object& to, const std::string& new_name);
  void exchange(Object& from, const std::string& name, Object& to, const std::string& new_name);
  // Removes a directory with everything in it.
  void remove(Object& directory, const std::string& name);

 private:
  struct Moment {
    std::int64_t begin, end;
  };
  template <typename Calls>
  Moment at(Calls&& calls);
  Object& add_object(Kind kind);
  Object& adopt(Object& directory, const std::string& name, Kind kind, const Moment& when);
  Moment write_at_once(int fd, const std::string& bytes, off_t offset, bool is_visible);
  void set_entry(Object& directory, const std::string& name, Object* child, const Moment& when);
  void note_attributes(const Moment& when);
  void wait_for_tick(const Object& object) const;
  static std::string proc_path(const Object& object) {
    return "/proc/self/fd/" + std::to_string(object.fd);
  }

  std::vector<std::unique_ptr<Object>> objects_;
  Object* root_ = nullptr;
  Object* staging_ = nullptr;
  std::uint32_t last_tag_ = 0;
  unsigned last_name_ = 0;
  bool is_watched_ = false;
  std::function<void(bool)> hold_mounts_;
};

}  // namespace cube::mutator
