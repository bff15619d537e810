#include "tests/preload/freshness/mutator/world.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

namespace cube::mutator {
namespace {

// Threads of a reader ask at any time. If a call takes longer than this limit, they can see its
// effect half done.
constexpr std::int64_t k_slow = 100'000;

#define MUST(condition)                                                                            \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      std::fprintf(stderr, "world.cc:%d: %s: %s\n", __LINE__, #condition, strerrorname_np(errno)); \
      std::abort();                                                                                \
    }                                                                                              \
  } while (false)

std::int64_t ns(const timespec& time) { return time.tv_sec * 1'000'000'000LL + time.tv_nsec; }

Attributes attributes_of(int fd) {
  struct stat st {};
  MUST(fstatat(fd, "", &st, AT_EMPTY_PATH) == 0);
  return {st.st_ino,      static_cast<std::uint64_t>(st.st_size),
          st.st_mode,     st.st_nlink,
          ns(st.st_mtim), ns(st.st_ctim)};
}

}  // namespace

template <typename Calls>
World::Moment World::at(Calls&& calls) {
  const std::int64_t begin = now_ns();
  calls();
  return {begin, now_ns()};
}

World::World(const std::string& base) {
  const std::int64_t begin = now_ns();
  for (const char* name : {"data", "staging"}) {
    const std::string path = base + "/" + name;
    MUST(::mkdir(path.c_str(), 0755) == 0);
    Object& directory = add_object(Kind::directory);
    directory.fd = open(path.c_str(), O_PATH | O_CLOEXEC);
    MUST(directory.fd >= 0);
    directory.names.add(begin, now_ns(), {});
    (root_ == nullptr ? root_ : staging_) = &directory;
  }
  note_attributes({begin, now_ns()});
}

World::~World() {
  for (const auto& object : objects_) {
    if (object->fd >= 0) close(object->fd);
  }
}

Object& World::add_object(Kind kind) {
  objects_.push_back(std::make_unique<Object>());
  Object& object = *objects_.back();
  object.id = static_cast<int>(objects_.size());
  object.kind = kind;
  return object;
}

Object& World::adopt(Object& directory, const std::string& name, Kind kind, const Moment& when) {
  Object& object = add_object(kind);
  object.fd = openat(directory.fd, name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC);
  MUST(object.fd >= 0);
  if (kind == Kind::directory) object.names.add(when.begin, when.end, {});
  set_entry(directory, name, &object, when);
  note_attributes(when);
  return object;
}

void World::set_entry(Object& directory, const std::string& name, Object* child,
                      const Moment& when) {
  Timeline<Object*>& entry = directory.entries[name];
  if (entry.empty()) entry.add(0, 0, nullptr);
  entry.add(when.begin, when.end, child);
  Names names;
  for (const auto& [each, timeline] : directory.entries) {
    if (timeline.now() != nullptr) names.push_back(each);
  }
  directory.names.add(when.begin, when.end, std::move(names));
}

void World::note_attributes(const Moment& when) {
  for (const auto& object : objects_) {
    if (object->fd < 0) continue;
    const Attributes now = attributes_of(object->fd);
    object->attributes.add(when.begin, when.end, now,
                           is_watched_ || when.end - when.begin > k_slow);
    // A removed object no longer changes. On ext4, a removed directory has no links left either.
    if (now.links == 0) close(std::exchange(object->fd, -1));
  }
}

// Two changes within one tick of the file system's clock have the same change time, and cannot be
// distinguished.
void World::wait_for_tick(const Object& object) const {
  timespec now{};
  do {
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
  } while (ns(now) <= object.attributes.now().changed_ns);
}

Object& World::make_file(Object& directory, const std::string& name, const Runs& runs) {
  int fd = -1;
  Moment when = at([&] {
    fd = openat(directory.fd, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  });
  MUST(fd >= 0);
  Object& file = adopt(directory, name, Kind::file, when);
  file.content.add(when.begin, when.end, {});
  when = write_at_once(fd, encode(runs, 0), 0, &directory != staging_);
  close(fd);
  file.content.add(when.begin, when.end, runs);
  note_attributes(when);
  return file;
}

World::Moment World::write_at_once(int fd, const std::string& bytes, off_t offset,
                                   bool is_visible) {
  const bool holds = is_visible && hold_mounts_;
  if (holds) hold_mounts_(true);
  const Moment when = at([&] {
    MUST(pwrite(fd, bytes.data(), bytes.size(), offset) == static_cast<ssize_t>(bytes.size()));
  });
  if (holds) hold_mounts_(false);
  return when;
}

Object& World::make_directory(Object& directory, const std::string& name) {
  const Moment when = at([&] { MUST(mkdirat(directory.fd, name.c_str(), 0755) == 0); });
  return adopt(directory, name, Kind::directory, when);
}

Object& World::make_link(Object& directory, const std::string& name, const std::string& target) {
  const Moment when = at([&] { MUST(symlinkat(target.c_str(), directory.fd, name.c_str()) == 0); });
  Object& link = adopt(directory, name, Kind::link, when);
  link.target = target;
  return link;
}

void World::write(Object& file, std::uint64_t first, const Runs& runs, bool truncates_first) {
  wait_for_tick(file);
  const std::string bytes = encode(runs, first);
  int fd = -1;
  Moment when = at([&] {
    fd = open(proc_path(file).c_str(), O_WRONLY | O_CLOEXEC | (truncates_first ? O_TRUNC : 0));
  });
  MUST(fd >= 0);
  if (truncates_first) {
    file.content.add(when.begin, when.end, {});
    note_attributes(when);
  }
  const Runs& old = file.content.now();
  Runs whole = cut(old, 0, first);
  if (const std::uint64_t kept = words_in(whole); kept < first) {
    append_run(whole, {k_hole, static_cast<std::uint32_t>(first - kept)});
  }
  for (const Run& run : runs) append_run(whole, run);
  for (const Run& run : cut(old, words_in(whole), UINT64_MAX / 2)) append_run(whole, run);
  when = write_at_once(fd, bytes, static_cast<off_t>(first * k_word), true);
  close(fd);
  file.content.add(when.begin, when.end, std::move(whole));
  note_attributes(when);
}

void World::truncate(Object& file, std::uint64_t words) {
  wait_for_tick(file);
  Runs runs = cut(file.content.now(), 0, words);
  if (const std::uint64_t kept = words_in(runs); kept < words)
    append_run(runs, {k_hole, static_cast<std::uint32_t>(words - kept)});
  const Moment when = at(
      [&] { MUST(::truncate(proc_path(file).c_str(), static_cast<off_t>(words * k_word)) == 0); });
  file.content.add(when.begin, when.end, std::move(runs));
  note_attributes(when);
}

void World::set_times(Object& object, std::int64_t modified_ns) {
  const timespec time{modified_ns / 1'000'000'000, modified_ns % 1'000'000'000};
  const timespec times[2] = {time, time};
  const Moment when =
      at([&] { MUST(utimensat(AT_FDCWD, proc_path(object).c_str(), times, 0) == 0); });
  note_attributes(when);
}

void World::set_mode(Object& object, mode_t mode) {
  const Moment when = at([&] { MUST(::chmod(proc_path(object).c_str(), mode) == 0); });
  note_attributes(when);
}

void World::add_name(Object& file, Object& directory, const std::string& name) {
  const Moment when = at([&] {
    MUST(linkat(AT_FDCWD, proc_path(file).c_str(), directory.fd, name.c_str(), AT_SYMLINK_FOLLOW) ==
         0);
  });
  set_entry(directory, name, &file, when);
  note_attributes(when);
}

void World::rename(Object& from, const std::string& name, Object& to, const std::string& new_name) {
  Object* const moved = from.child(name);
  const Moment when =
      at([&] { MUST(renameat(from.fd, name.c_str(), to.fd, new_name.c_str()) == 0); });
  set_entry(from, name, nullptr, when);
  set_entry(to, new_name, moved, when);
  note_attributes(when);
}

void World::exchange(Object& from, const std::string& name, Object& to,
                     const std::string& new_name) {
  Object *const one = from.child(name), *const other = to.child(new_name);
  const Moment when = at([&] {
    MUST(renameat2(from.fd, name.c_str(), to.fd, new_name.c_str(), RENAME_EXCHANGE) == 0);
  });
  set_entry(from, name, other, when);
  set_entry(to, new_name, one, when);
  note_attributes(when);
}

void World::remove(Object& directory, const std::string& name) {
  Object& object = *directory.child(name);
  if (object.kind == Kind::directory) {
    const Names inside = object.names.now();
    for (const auto& each : inside) remove(object, each);
  }
  const int flags = object.kind == Kind::directory ? AT_REMOVEDIR : 0;
  const Moment when = at([&] { MUST(unlinkat(directory.fd, name.c_str(), flags) == 0); });
  set_entry(directory, name, nullptr, when);
  note_attributes(when);
}

}  // namespace cube::mutator
