#include "tests/preload/freshness/mutator/mutations.h"

#include <ctime>

namespace cube::mutator {
namespace {

constexpr std::int64_t k_second = 1'000'000'000;
constexpr unsigned k_directories = 6, k_files = 6;
constexpr const char* k_names[] = {"f0", "f1", "f2", "f3", "f4", "f5", "x0", "x1", "x2"};
constexpr const char* k_replaced[] = {"v1", "v2", "d3"};
constexpr mode_t k_modes[] = {0644, 0600, 0640, 0755};
constexpr std::uint64_t k_page_words = 4096 / k_word;

std::int64_t wall_ns() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * k_second + now.tv_nsec;
}

}  // namespace

void Mutations::make_tree() {
  Object& root = world_.root();
  for (unsigned i = 0; i < k_directories; ++i) {
    Object& directory = world_.make_directory(root, "d" + std::to_string(i));
    for (unsigned j = 0; j < k_files; ++j) {
      const std::uint64_t words = j == 0   ? below(random_, 64)
                                  : j == 5 ? 8000 + below(random_, 20'000)
                                           : 100 + below(random_, 2000);
      world_.make_file(directory, "f" + std::to_string(j), new_runs(words));
    }
  }
  Object& d1 = *root.child("d1");
  Object& d2 = *root.child("d2");
  world_.make_link(d1, "link", "../d2/f1");
  world_.make_link(d2, "link", "f3");
  world_.add_name(*d2.child("f2"), *root.child("d3"), "hard");
  world_.add_name(*d2.child("f2"), d1, "hard");
  Object& big = world_.make_directory(root, "big");
  const std::uint64_t most = k_most_whole / k_word;
  for (const char* name : {"m0", "m1"})
    world_.make_file(big, name, new_runs((1 << 20) / k_word + below(random_, most / 4)));
  for (const char* name : {"g0", "g1"})
    world_.make_file(big, name, new_runs(most + 1 + below(random_, most / 4)));
  for (const char* name : {"v1", "v2"}) {
    Object& version = world_.make_directory(root, name);
    for (const char* file : {"f", "g"})
      world_.make_file(version, file, new_runs(100 + below(random_, 2000)));
  }
  world_.make_link(root, "current", "v1");
  for (const auto& object : world_.objects()) {
    if (object->kind != Kind::link) world_.set_times(*object, wall_ns() - 3600 * k_second);
  }
}

std::vector<Mutations::Spot> Mutations::spots() {
  std::vector<Spot> all;
  for (const auto& name : world_.root().names.now()) {
    Object* const object = world_.root().child(name);
    all.push_back({&world_.root(), name, object, name});
    if (object->kind != Kind::directory) continue;
    for (const auto& inner : object->names.now())
      all.push_back({object, inner, object->child(inner), name + "/" + inner});
  }
  return all;
}

Mutations::Spot Mutations::pick(const std::string& near, bool (*fits)(const Spot&)) {
  std::vector<Spot> all = spots();
  std::erase_if(all, [&](const Spot& spot) { return !fits(spot); });
  if (all.empty()) return {};
  for (const Spot& spot : all) {
    if (spot.path == near) return spot;
  }
  // The first directories change often. The last directories change so rarely that the library may
  // keep their contents.
  const Spot* best = &one_of(random_, all);
  for (unsigned turn = 0; turn < 2; ++turn) {
    if (const Spot& other = one_of(random_, all); other.path < best->path) best = &other;
  }
  return *best;
}

// A file has few pages or many, is fetched in parts (1 MiB and more), or is served in blocks.
// Changes keep the file in its class.
std::uint64_t Mutations::words_like(const Spot& spot) {
  const std::uint64_t most = k_most_whole / k_word;
  if (spot.path.starts_with("big/g")) return most + 1 + below(random_, most / 4);
  if (spot.path.starts_with("big/")) return (1 << 20) / k_word + below(random_, most / 4);
  if (spot.name == "f5") return 8000 + below(random_, 20'000);
  return below(random_, 4) == 0 ? below(random_, k_page_words) : below(random_, 4096);
}

Mutations::Change Mutations::change(const std::string& near) {
  const auto is_file = [](const Spot& spot) { return spot.object->kind == Kind::file; };
  const std::uint64_t dice = below(random_, 100);
  if (dice < 52) {
    const Spot spot = pick(near, is_file);
    return {spot.path, change_file(spot)};
  }
  if (dice < 66) {
    const Spot spot = pick(near, is_file);
    return {spot.path, replace_file(spot)};
  }
  if (dice < 90) {
    const Spot spot = pick(near, [](const Spot& one) {
      return one.directory != nullptr && one.path.find('/') != std::string::npos;
    });
    return change_names(spot);
  }
  return dice < 95 ? switch_link() : replace_directory();
}

std::string Mutations::change_file(const Spot& spot) {
  Object& file = *spot.object;
  const std::uint64_t size = words_in(file.content.now());
  const std::int64_t modified = file.attributes.now().modified_ns;
  const std::uint64_t dice = below(random_, 11);
  switch (dice) {
    case 0:
    case 1:
    case 2:
    case 3:
      world_.write(file, 0, new_runs(size), false);
      if (dice < 2) return "rewritten, same size";
      world_.set_times(file, modified);
      return "rewritten, same size and time";
    case 4: world_.write(file, 0, new_runs(words_like(spot)), true); return "rewritten by O_TRUNC";
    case 5:
      world_.write(file, size, new_runs(1 + below(random_, 600)), false);
      return "appended to";
    case 6:
      world_.truncate(file, spot.path.starts_with("big/") ? size - below(random_, size / 8 + 1)
                                                          : below(random_, size + 1));
      return "truncated";
    case 7: {
      const std::uint64_t first = below(random_, size + 1),
                          words = 1 + below(random_, size - first + 1);
      world_.write(file, first, new_runs(words), false);
      return "patched";
    }
    case 8: world_.set_mode(file, one_of(random_, k_modes)); return "chmod";
    case 9:
      world_.set_times(file,
                       wall_ns() - static_cast<std::int64_t>(below(random_, 1000)) * k_second);
      return "touched";
    default: world_.truncate(file, size + below(random_, 600)); return "extended";
  }
}

std::string Mutations::replace_file(const Spot& spot) {
  const bool is_alike = below(random_, 2) == 0;
  const std::string name = world_.staging_name();
  const std::uint64_t size = words_in(spot.object->content.now());
  Object& next =
      world_.make_file(world_.staging(), name, new_runs(is_alike ? size : words_like(spot)));
  if (is_alike) world_.set_times(next, spot.object->attributes.now().modified_ns);
  world_.rename(world_.staging(), name, *spot.directory, spot.name);
  return is_alike ? "replaced, same size and time" : "replaced";
}

Mutations::Change Mutations::change_names(const Spot& spot) {
  Object& directory = *spot.directory;
  const std::string name = one_of(random_, k_names);
  const std::string path = spot.path.substr(0, spot.path.find('/') + 1) + name;
  if (&directory == world_.root().child("big")) return {spot.path, change_file(spot)};
  if (directory.child(name) == nullptr) {
    switch (below(random_, 6)) {
      case 0: world_.make_directory(directory, name); return {path, "made, a directory"};
      case 1:
        world_.make_link(directory, name, one_of(random_, directory.names.now()));
        return {path, "made, a symbolic link"};
      case 2:
        if (spot.object->kind != Kind::file) break;
        world_.add_name(*spot.object, directory, name);
        return {path, "made, a link to " + spot.path};
      case 3:
        if (spot.object->kind != Kind::file) break;
        world_.rename(directory, spot.name, directory, name);
        return {path, "renamed from " + spot.path};
      default: break;
    }
    world_.make_file(directory, name, new_runs(100 + below(random_, 2000)));
    return {path, "created"};
  }
  if (directory.names.now().size() < 3) return {path, "left alone"};
  if (Object& there = *directory.child(name);
      below(random_, 4) == 0 && name != spot.name && &there != spot.object &&
      there.kind != Kind::directory && spot.object->kind != Kind::directory) {
    world_.rename(directory, spot.name, directory, name);
    return {path, "replaced by " + spot.path};
  }
  world_.remove(directory, name);
  return {path, "removed"};
}

Mutations::Change Mutations::switch_link() {
  Object& root = world_.root();
  const std::string name = world_.staging_name();
  if (below(random_, 2) == 0) {
    const std::string target = root.child("current")->target == "v1" ? "v2" : "v1";
    world_.make_link(world_.staging(), name, target);
    world_.rename(world_.staging(), name, root, "current");
    return {"current/f", "switched to " + target};
  }
  Object& d1 = *root.child("d1");
  const std::string target = "../d2/f" + std::to_string(below(random_, k_files));
  world_.make_link(world_.staging(), name, target);
  const Object* const there = d1.child("link");
  if (there != nullptr && there->kind == Kind::directory) world_.remove(d1, "link");
  world_.rename(world_.staging(), name, d1, "link");
  return {"d1/link", "switched to " + target};
}

Mutations::Change Mutations::replace_directory() {
  Object& root = world_.root();
  if (below(random_, 2) == 0) {
    world_.exchange(root, "v1", root, "v2");
    return {"v1/f", "v1 and v2 exchanged"};
  }
  const std::string old = one_of(random_, k_replaced);
  const std::string name = world_.staging_name();
  Object& next = world_.make_directory(world_.staging(), name);
  for (const auto& each : root.child(old)->names.now()) {
    if (root.child(old)->child(each)->kind != Kind::file || below(random_, 8) == 0) continue;
    world_.make_file(next, each, new_runs(100 + below(random_, 2000)));
  }
  if (next.names.now().empty()) world_.make_file(next, "f", new_runs(100));
  world_.exchange(world_.staging(), name, root, old);
  world_.remove(world_.staging(), name);
  return {old + "/f", "directory replaced"};
}

}  // namespace cube::mutator
