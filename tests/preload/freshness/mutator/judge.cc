#include "tests/preload/freshness/mutator/judge.h"

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>

namespace cube::mutator {
namespace {

constexpr std::int64_t k_second = 1'000'000'000;
constexpr std::uint64_t k_whole = UINT32_MAX;

bool reads_whole(const Ask& ask) {
  return ask.what == "read" || ask.what == "stream" || ask.what == "map";
}
std::uint64_t words_of(const Ask& ask) {
  return ask.what == "pread" || ask.what == "kept-read" ? ask.words : k_whole;
}

std::string milliseconds(std::int64_t ns) {
  char text[40];
  std::snprintf(text, sizeof text, "%.1f ms", static_cast<double>(ns) / 1e6);
  return text;
}

std::string text_of(const Runs& runs) {
  std::string text = std::to_string(words_in(runs) * k_word) + " bytes:";
  for (std::size_t i = 0; i < runs.size() && i < 8; ++i) {
    text += " #" + std::to_string(runs[i].tag) + " x" + std::to_string(runs[i].words);
  }
  return text + (runs.size() > 8 ? " ..." : "");
}

std::string text_of(const Attributes& a) {
  char text[200];
  std::snprintf(text, sizeof text, "inode %lu, %lu bytes, mode %o, links %lu, mtime %ld, ctime %ld",
                a.inode, a.size, a.mode, a.links, a.modified_ns, a.changed_ns);
  return text;
}

}  // namespace

void Judge::job_begins(std::int64_t now) {
  job_begin_ = now;
  kept_.clear();
  seen_.clear();
}

Judge::Window Judge::window_of(const Answer& answer, std::int64_t slack_ns) const {
  const std::int64_t kernel = timeout_s_ == 0 ? 0 : timeout_s_ * k_second + slack_ns;
  const bool is_library = promise_ == Promise::ttl_1 || promise_ == Promise::immutable;
  const std::int64_t promised = promise_ == Promise::immutable ? std::min(answer.begin, job_begin_)
                                : promise_ == Promise::ttl_1   ? answer.begin - k_second
                                                               : answer.begin;
  // doc/METADATA.md: negative entries and listings are at most a second old; with `open` they are
  // the kernel's.
  const std::int64_t of_directory = is_library ? answer.begin - k_second : answer.begin;
  const std::int64_t of_names = std::min(promised, of_directory);
  return {.names = {.present = of_names - kernel, .absent = of_directory, .until = answer.end},
          .content = promised,
          .attributes = of_names - kernel,
          .listing = of_directory,
          .end = answer.end,
          .kernel_ns = kernel};
}

std::string Judge::verdict(const Ask& ask, const Answer& answer, std::int64_t slack_ns) {
  const Window window = window_of(answer, slack_ns);
  if (ask.what == "drop") {
    kept_.erase(ask.slot);
    return answer.kind == 'Y' ? "" : "a kept file cannot be closed";
  }
  if (ask.is_of_kept()) return judge_kept(ask, answer, window);
  if (answer.kind == 'L') return judge_listing(ask, answer, window);
  return judge_path(ask, answer, window);
}

std::string Judge::judge_path(const Ask& ask, const Answer& answer, const Window& window) {
  const bool follows = ask.what != "lstat" && ask.what != "readlink";
  const std::vector<Place> places = places_of(world_, ask.path, follows, window.names);
  if (answer.kind == 'E') return judge_error(ask, answer, places);
  if (answer.kind == 'D') return judge_data(ask, answer, window, places);
  Kept kept{.opened = window};
  for (const Place& place : places) {
    if (place.error != 0) continue;
    const Object& object = *place.object;
    bool fits = false;
    if (answer.kind == 'Y') {
      fits = true;
    } else if (answer.kind == 'T') {
      fits = ask.what == "readlink" ? object.kind == Kind::link && object.target == answer.target
                                    : place.real == answer.target;
    } else if (answer.kind == 'A') {
      fits = has_attributes(object, *answer.attributes, window.attributes, window.end);
    }
    if (!fits) continue;
    if (ask.what != "keep") return "";
    kept.objects.insert(place.object);
  }
  if (!kept.objects.empty()) {
    kept_[ask.slot] = std::move(kept);
    return "";
  }
  return "an answer of no permitted moment" + origin_of(answer);
}

std::string Judge::judge_error(const Ask& ask, const Answer& answer,
                               const std::vector<Place>& places) {
  for (const Place& place : places) {
    if (place.error != 0 && answer.error == strerrorname_np(place.error)) return "";
    if (place.error != 0) continue;
    const Object& object = *place.object;
    const bool reads = reads_whole(ask) || ask.what == "pread" || ask.what == "keep";
    if (answer.error == "EISDIR" && reads && object.kind == Kind::directory) return "";
    if (answer.error == "ENOTDIR" && (ask.what == "list" || ask.what == "scan") &&
        object.kind != Kind::directory)
      return "";
    if (answer.error == "EINVAL" && ask.what == "readlink" && object.kind != Kind::link) return "";
    // A removed directory, found by a name that the kernel still caches.
    if (answer.error == "ENOENT" && object.kind == Kind::directory &&
        object.attributes.now().links == 0)
      return "";
  }
  return "an error of no permitted moment";
}

// The kernel reads the current bytes up to the size that it has cached, and fills the rest with
// zeros (for a mapping, to the end of the page). No record of such bytes may remain, so the mode
// allows no other deviation.
bool Judge::is_kernels_cut(const Object& file, const Ask& ask, const Answer& answer,
                           std::int64_t kernel_ns) const {
  if (timeout_s_ == 0) return false;
  std::uint64_t most = 0;
  file.attributes.each(answer.begin - kernel_ns, answer.end,
                       [&](std::size_t, const Attributes& a) { most = std::max(most, a.size); });
  const std::uint64_t words = answer.size / k_word;
  bool fits = false;
  file.content.each(answer.begin, answer.end, [&](std::size_t, const Runs& runs) {
    Runs seen = cut(runs, ask.first, words);
    append_run(seen, {k_hole, static_cast<std::uint32_t>(words - words_in(seen))});
    fits |= seen == answer.runs && ask.first + words <= most / k_word;
  });
  return fits;
}

std::string Judge::judge_data(const Ask& ask, const Answer& answer, const Window& window,
                              const std::vector<Place>& places) {
  std::string late;
  for (const Place& place : places) {
    if (place.error != 0 || place.object->kind != Kind::file) continue;
    const Object& file = *place.object;
    std::size_t version = SIZE_MAX;
    file.content.each(window.content, window.end, [&](std::size_t i, const Runs& runs) {
      if (version == SIZE_MAX && cut(runs, ask.first, words_of(ask)) == answer.runs) version = i;
    });
    bool fits = version != SIZE_MAX;
    // A write is not atomic for concurrent readers.
    fits |= file.content.changes(answer.begin, answer.end) &&
            is_mixture(file, ask.first, answer.runs, window.content, window.end);
    fits |= is_kernels_cut(file, ask, answer, window.kernel_ns);
    if (fits && answer.attributes) {
      if (!has_attributes(file, *answer.attributes, window.attributes, window.end)) {
        late = "a stat of the open file of no permitted moment" + origin_of(answer);
        continue;
      }
    }
    if (!fits) continue;
    // Bytes without any written word do not show from which version they come.
    const bool is_told_apart = std::any_of(answer.runs.begin(), answer.runs.end(),
                                           [](const Run& run) { return run.tag != k_hole; });
    if (version == SIZE_MAX || !reads_whole(ask) || !is_told_apart) return "";
    return judge_progress(ask, place, version, window);
  }
  return !late.empty() ? late : "bytes of no permitted moment" + origin_of(answer);
}

// Within a job, no reader may see an earlier version than before.
std::string Judge::judge_progress(const Ask& ask, const Place& place, std::size_t version,
                                  const Window& window) {
  Seen now{place.object, version, place.directory, place.name, SIZE_MAX};
  std::size_t last = 0;
  const Timeline<Object*>& entry = place.directory->entries.at(place.name);
  entry.each(window.names.present, window.end, [&](std::size_t i, Object* object) {
    if (object != place.object) return;
    now.entry = std::min(now.entry, i);
    last = std::max(last, i);
  });
  const auto before = seen_.find(ask.path);
  std::string wrong;
  if (before != seen_.end()) {
    const Seen& seen = before->second;
    if (seen.object == now.object && version < seen.version)
      wrong = "older bytes than the same job has seen before";
    if (seen.object != now.object && seen.directory == now.directory && seen.name == now.name &&
        last < seen.entry) {
      wrong = "an older file than the same job has seen before";
    }
  }
  seen_[ask.path] = now;
  return wrong;
}

bool Judge::is_mixture(const Object& file, std::uint64_t first, const Runs& runs, std::int64_t from,
                       std::int64_t until) const {
  std::uint64_t at = first;
  for (const Run& run : runs) {
    std::vector<bool> known(run.words, run.tag == k_hole && timeout_s_ != 0);
    file.content.each(from, until, [&](std::size_t, const Runs& version) {
      std::uint64_t begin = 0;
      for (const Run& each : version) {
        const std::uint64_t low = std::max(begin, at),
                            high = std::min(begin + each.words, at + run.words);
        if (each.tag == run.tag && low < high) {
          std::fill(known.begin() + static_cast<std::ptrdiff_t>(low - at),
                    known.begin() + static_cast<std::ptrdiff_t>(high - at), true);
        }
        begin += each.words;
      }
    });
    if (!std::all_of(known.begin(), known.end(), [](bool is_known) { return is_known; }))
      return false;
    at += run.words;
  }
  return true;
}

std::string Judge::judge_kept(const Ask& ask, const Answer& answer, const Window& window) {
  const Kept& kept = kept_.at(ask.slot);
  for (Object* const object : kept.objects) {
    bool fits = false;
    if (answer.kind == 'A') {
      fits = has_attributes(*object, *answer.attributes, kept.opened.attributes, window.end);
      // doc/SEMANTICS.md, Limits: for a file that is no longer at its path, the answer may describe
      // the copy that holds its bytes.
      fits |= promise_ != Promise::kernel && answer.attributes->links == 0 &&
              std::any_of(object->content.begin(), object->content.end(), [&](const auto& version) {
                return words_in(version.value) * k_word == answer.attributes->size;
              });
    } else if (answer.kind == 'D' && object->kind == Kind::file &&
               is_mixture(*object, ask.first, answer.runs, kept.opened.content, window.end)) {
      object->attributes.each(
          kept.opened.attributes, window.end, [&](std::size_t, const Attributes& a) {
            const std::uint64_t words = a.size / k_word;
            fits |= answer.size / k_word ==
                    (words <= ask.first ? 0 : std::min(ask.words, words - ask.first));
          });
    } else if (answer.kind == 'E') {
      fits = answer.error == "EISDIR" && object->kind == Kind::directory;
    }
    if (fits) return "";
  }
  return "an open file shows what it never held since its open" + origin_of(answer);
}

std::string Judge::judge_listing(const Ask& ask, const Answer& answer, const Window& window) {
  std::string wrong = "names of no permitted moment";
  for (const Place& place : places_of(world_, ask.path, true, window.names)) {
    if (place.error != 0 || place.object->kind != Kind::directory) continue;
    bool fits = false;
    std::set<std::string> some;
    std::map<std::string, std::size_t> times;
    std::size_t states = 0;
    place.object->names.each(window.listing, window.end, [&](std::size_t, const Names& names) {
      fits |= names == answer.names;
      ++states;
      for (const auto& name : names) ++times[name];
    });
    if (place.object->names.changes(answer.begin, answer.end)) {
      const std::set<std::string> seen(answer.names.begin(), answer.names.end());
      fits |= std::all_of(times.begin(), times.end(),
                          [&](const auto& each) {
                            return each.second < states || seen.contains(each.first);
                          }) &&
              std::all_of(seen.begin(), seen.end(),
                          [&](const auto& name) { return times.contains(name); });
    }
    if (fits) wrong.clear();
  }
  if (!wrong.empty()) return wrong;
  for (std::size_t i = 0; i < answer.entries.size() && i < answer.names.size(); ++i) {
    Ask entry{.what = "lstat", .path = ask.path + "/" + answer.names[i]};
    if (std::string found = judge_path(entry, answer.entries[i], window); !found.empty()) {
      return entry.path + ": " + answer.entries[i].error + ": " + found;
    }
  }
  return "";
}

// If a reader may have asked in the middle of a change and kept the answer, each field is judged
// separately, and any size between the old and the new size is accepted.
bool Judge::has_attributes(const Object& object, const Attributes& seen, std::int64_t from,
                           std::int64_t until) {
  bool fits = false;
  Attributes known;
  std::uint64_t least = UINT64_MAX, most = 0;
  object.attributes.each(from, until, [&](std::size_t, const Attributes& a) {
    fits |= a == seen;
    const auto take = [](auto& field, const auto& value, const auto& wanted) {
      if (value == wanted) field = wanted;
    };
    take(known.inode, a.inode, seen.inode);
    take(known.mode, a.mode, seen.mode);
    take(known.links, a.links, seen.links);
    take(known.modified_ns, a.modified_ns, seen.modified_ns);
    take(known.changed_ns, a.changed_ns, seen.changed_ns);
    least = std::min(least, a.size);
    most = std::max(most, a.size);
  });
  if (least <= seen.size && seen.size <= most) known.size = seen.size;
  return fits || (object.attributes.was_torn(from) && known == seen);
}

// Describes which file had these bytes or this stat earlier, and how long ago they were replaced.
std::string Judge::origin_of(const Answer& answer) const {
  for (const auto& object : world_.objects()) {
    for (std::size_t i = object->content.size(); answer.kind == 'D' && i-- > 0;) {
      if (object->content[i].value != answer.runs || answer.runs.empty()) continue;
      return ": version " + std::to_string(i) + " of object " + std::to_string(object->id) +
             ", replaced " + milliseconds(answer.begin - object->content.gone(i)) +
             " before the question";
    }
    for (std::size_t i = object->attributes.size(); answer.kind == 'A' && i-- > 0;) {
      if (object->attributes[i].value != *answer.attributes) continue;
      return ": stat " + std::to_string(i) + " of object " + std::to_string(object->id) +
             ", replaced " + milliseconds(answer.begin - object->attributes.gone(i)) +
             " before the question";
    }
  }
  if (answer.kind == 'A') return ": no such stat has ever been";
  return answer.kind == 'D' ? ": no file has ever held them as a whole" : "";
}

std::string Judge::history(const Ask& ask, const Answer& answer) const {
  constexpr std::size_t k_most = 8;
  std::string text;
  const auto when = [&](std::int64_t begin) {
    return begin == 0 ? std::string("ever") : milliseconds(begin - answer.begin);
  };
  std::vector<Place> places = places_of(
      world_, ask.path, true,
      {.present = answer.begin - 40 * k_second, .absent = LLONG_MAX, .until = answer.end});
  if (ask.is_of_kept() && kept_.contains(ask.slot)) {
    for (Object* const object : kept_.at(ask.slot).objects)
      places.push_back({.object = object, .real = "(kept)"});
  }
  std::set<const void*> told;
  for (const Place& place : places) {
    if (place.error != 0) continue;
    if (place.directory != nullptr &&
        told.insert(&place.directory->entries.at(place.name)).second) {
      const auto& entry = place.directory->entries.at(place.name);
      text +=
          "    name " + place.name + " of object " + std::to_string(place.directory->id) + ":\n";
      for (std::size_t i = entry.size() - std::min(entry.size(), k_most); i < entry.size(); ++i) {
        text += "      from " + when(entry[i].begin) + ": " +
                (entry[i].value == nullptr ? "absent"
                                           : "object " + std::to_string(entry[i].value->id)) +
                "\n";
      }
    }
    const Object& object = *place.object;
    if (!told.insert(&object).second) continue;
    text += "    object " + std::to_string(object.id) + ", " + place.real + ":\n";
    for (std::size_t i = object.content.size() - std::min(object.content.size(), k_most);
         i < object.content.size(); ++i) {
      text += "      from " + when(object.content[i].begin) + ": version " + std::to_string(i) +
              ", " + text_of(object.content[i].value) + "\n";
    }
    for (std::size_t i = object.attributes.size() - std::min(object.attributes.size(), k_most);
         i < object.attributes.size(); ++i) {
      text += "      from " + when(object.attributes[i].begin) + ": stat " + std::to_string(i) +
              ", " + text_of(object.attributes[i].value) + "\n";
    }
    for (std::size_t i = object.names.size() - std::min(object.names.size(), k_most);
         i < object.names.size(); ++i) {
      text += "      from " + when(object.names[i].begin) + ":";
      for (const auto& name : object.names[i].value) text += " " + name;
      text += "\n";
    }
  }
  return text;
}

}  // namespace cube::mutator
