#include "tests/preload/freshness/mutator/places.h"

#include <cerrno>
#include <deque>

namespace cube::mutator {
namespace {

constexpr unsigned k_most_links = 8;

using Parts = std::deque<std::string>;

Parts parts_of(const std::string& path) {
  Parts parts;
  for (std::size_t at = 0; at <= path.size();) {
    const std::size_t end = std::min(path.find('/', at), path.size());
    if (std::string part = path.substr(at, end - at); !part.empty() && part != ".")
      parts.push_back(std::move(part));
    at = end + 1;
  }
  return parts;
}

struct Step {
  Object* object;
  std::string name;
};

class Walk {
 public:
  Walk(World& world, bool follows, const Since& since)
      : world_(world), follows_(follows), since_(since) {}

  void go(std::vector<Step> way, Parts rest, unsigned links) {
    if (rest.empty()) return arrive(way);
    Object& here = way.empty() ? world_.root() : *way.back().object;
    if (here.kind != Kind::directory) return fail(ENOTDIR);
    const std::string name = rest.front();
    rest.pop_front();
    if (name == "..") {
      if (!way.empty()) way.pop_back();
      return go(std::move(way), std::move(rest), links);
    }
    const auto entry = here.entries.find(name);
    if (entry == here.entries.end()) return fail(ENOENT);
    entry->second.each(
        std::min(since_.present, since_.absent), since_.until, [&](std::size_t i, Object* child) {
          if (entry->second.gone(i) < (child != nullptr ? since_.present : since_.absent)) return;
          if (child == nullptr) return fail(ENOENT);
          if (child->kind == Kind::link && (follows_ || !rest.empty())) {
            if (links == k_most_links) return fail(ELOOP);
            Parts onward = parts_of(child->target);
            onward.insert(onward.end(), rest.begin(), rest.end());
            return go(way, std::move(onward), links + 1);
          }
          std::vector<Step> further = way;
          further.push_back({child, name});
          go(std::move(further), rest, links);
        });
  }

  std::vector<Place> found;

 private:
  void fail(int error) {
    if (failed_.insert(error).second) found.push_back({.error = error});
  }
  void arrive(const std::vector<Step>& way) {
    Place place{.object = way.empty() ? &world_.root() : way.back().object};
    for (const Step& step : way) place.real += (place.real.empty() ? "" : "/") + step.name;
    if (way.empty()) {
      place.real = ".";
    } else {
      place.directory = way.size() > 1 ? way[way.size() - 2].object : &world_.root();
      place.name = way.back().name;
    }
    if (arrived_.emplace(place.object, place.real).second) found.push_back(std::move(place));
  }

  World& world_;
  const bool follows_;
  const Since since_;
  std::set<int> failed_;
  std::set<std::pair<Object*, std::string>> arrived_;
};

void collect(Object& directory, const std::string& before, std::vector<std::string>& paths) {
  for (const auto& name : directory.names.now()) {
    paths.push_back(before + name);
    Object& child = *directory.child(name);
    if (child.kind == Kind::directory) collect(child, before + name + "/", paths);
  }
}

}  // namespace

std::vector<Place> places_of(World& world, const std::string& path, bool follows,
                             const Since& since) {
  Walk walk(world, follows, since);
  walk.go({}, parts_of(path), 0);
  return std::move(walk.found);
}

std::vector<std::string> all_paths(World& world) {
  std::vector<std::string> paths;
  collect(world.root(), "", paths);
  return paths;
}

}  // namespace cube::mutator
