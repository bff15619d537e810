#include "shim/cli/profile/profile_sites.h"

#include <algorithm>
#include <map>

#include <fmt/core.h>

#include "shim/cli/profile/function_name.h"
#include "shim/cli/run/elf_file.h"

namespace cube::cli {
namespace {

// Finds the names of addresses in the symbols of the mapped files.
class Symbols {
 public:
  ProfileFrame frame_of(const RawSection& section, std::uint64_t return_address) {
    const std::uint64_t address = return_address - 1;  // an address within the call instruction
    const auto map = std::find_if(section.maps.begin(), section.maps.end(), [&](const auto& m) {
      return address >= m.begin && address < m.end;
    });
    if (map == section.maps.end()) return {fmt::format("{:#x}", return_address), "", 0};
    const std::string library = map->path.substr(map->path.rfind('/') + 1);
    const ElfSymbols& symbols = of(map->path);
    const std::uint64_t offset = address - map->begin + map->offset;
    const std::string* const name = symbols.name_at(offset);
    return {name != nullptr ? name_of_symbol(*name) : fmt::format("+{:#x}", offset), library, 0};
  }

 private:
  const ElfSymbols& of(const std::string& path) {
    const auto known = files_.find(path);
    return known != files_.end() ? known->second
                                 : files_.emplace(path, read_symbols(path)).first->second;
  }
  std::map<std::string, ElfSymbols> files_;
};

bool is_of_interpreter(const ProfileFrame& frame) {
  return frame.function.starts_with("_PyEval_EvalFrame") || frame.function == "PyEval_EvalCode" ||
         frame.function == "_PyEval_Vector";
}

bool is_in_interpreter(const ProfileFrame& frame) {
  return frame.file.starts_with("python3") || frame.file.starts_with("libpython3");
}

bool is_of_libc(const ProfileFrame& frame) {
  constexpr std::string_view k_libraries[] = {"libc.so", "ld-linux", "libpthread", "libstdc++",
                                              "libc-2"};
  return std::any_of(std::begin(k_libraries), std::end(k_libraries),
                     [&](auto name) { return frame.file.starts_with(name); });
}

std::vector<ProfileFrame> frames_of(const RawSection& section, const RawSite& site,
                                    Symbols& symbols) {
  std::vector<ProfileFrame> frames;  // innermost first
  for (const auto address : site.native) {
    frames.push_back(symbols.frame_of(section, address));
    if (!site.python.empty() && is_of_interpreter(frames.back())) {
      frames.pop_back();
      break;
    }
  }
  const auto is_of_library = [](const ProfileFrame& frame) {
    return !is_in_interpreter(frame) && !is_of_libc(frame);
  };
  if (!site.python.empty()) {
    // If the interpreter is stripped, the loop above found no function name to stop at. The
    // interpreter's frames are useless, so remove them.
    frames.erase(std::find_if(frames.begin(), frames.end(), is_in_interpreter), frames.end());
  } else if (const auto library = std::find_if(frames.begin(), frames.end(), is_of_library);
             library != frames.end()) {
    // A library that reads the file in its own thread has no Python function in the stack. Such a
    // site keeps only functions of the library.
    if (std::any_of(frames.begin(), library, is_in_interpreter))
      frames.erase(frames.begin(), library);
  }
  for (const auto number : site.python) {
    const auto code = section.codes.find(number);
    if (code != section.codes.end())
      frames.push_back({code->second.function, code->second.file, std::max(code->second.line, 1U)});
  }
  std::reverse(frames.begin(), frames.end());
  return frames;
}

template <typename Counts>
void add_counts(Counts& to, const Counts& from) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] += from[i];
}

void add_cost(ProfileCost& sum,
              const std::array<std::uint64_t, shim::profile::k_cost_counts>& cost) {
  const auto of = [&](shim::profile::CostCount which) { return static_cast<double>(cost[which]); };
  const auto mean = [&](shim::profile::CostCount ns, shim::profile::CostCount timed) {
    return cost[timed] == 0 ? 0.0 : of(ns) / of(timed);
  };
  // Only forged counts can make the sum this large.
  constexpr double k_most = 1ULL << 53;
  const auto whole = [&](double ns) { return static_cast<std::uint64_t>(std::min(ns, k_most)); };
  const double reading_ns = of(shim::profile::k_clock_ns);
  const double call_ns =
      mean(shim::profile::k_sample_ns, shim::profile::k_samples_timed) + reading_ns;
  const double stack_ns =
      mean(shim::profile::k_stack_ns, shim::profile::k_stacks_timed) + 2 * reading_ns;
  sum.call_ns += whole(static_cast<double>(shim::profile::k_cost_sample) *
                       of(shim::profile::k_samples) * call_ns);
  sum.stacks += cost[shim::profile::k_stacks];
  sum.stack_ns += whole(of(shim::profile::k_stacks) * stack_ns);
  sum.start_and_end_ns += cost[shim::profile::k_start_ns] + cost[shim::profile::k_write_ns];
}

// Chooses the level with the finest bins that cover the whole time, from the first process's start
// to the last process's end.
std::size_t level_for(const Profile& profile) {
  std::size_t level = 0;
  while (level + 1 < shim::profile::k_bin_levels &&
         (profile.end_ns - profile.start_ns) / shim::profile::bin_width(level) + 1 >=
             shim::profile::k_bins)
    ++level;
  return level;
}

void note_times(Profile& profile, const std::vector<RawFile>& files) {
  for (const auto& file : files) {
    for (const auto& section : file.sections) {
      profile.start_ns =
          profile.processes == 0 ? section.start_ns : std::min(profile.start_ns, section.start_ns);
      profile.end_ns = std::max(profile.end_ns, section.end_ns);
      ++profile.processes;
    }
  }
}

}  // namespace

std::uint64_t Profile::total(std::size_t count) const {
  std::uint64_t sum = 0;
  for (const auto& site : sites) sum += site.counts[count];
  return sum;
}

Profile make_profile(const std::vector<RawFile>& files) {
  Profile made;
  Symbols symbols;
  std::map<std::string, ProfileSite> sites;
  std::map<std::uint64_t, ProfileBin> bins;
  note_times(made, files);
  const std::size_t level = level_for(made);
  made.bin_width_ns = shim::profile::bin_width(level);
  for (const auto& file : files) {
    made.bad_lines += file.bad_lines;
    for (const auto& section : file.sections) {
      made.cut_off += section.is_whole ? 0 : 1;
      made.observes = made.observes || section.observes;
      add_counts(made.dropped, section.dropped);
      add_cost(made.cost, section.cost);
      for (const auto& raw : section.sites) {
        auto frames = frames_of(section, raw, symbols);
        std::string key(shim::profile::k_kind_names[raw.kind]);
        for (const auto& frame : frames)
          key += fmt::format("\n{}\t{}\t{}", frame.function, frame.file, frame.line);
        ProfileSite& site = sites[key];
        site.kind = raw.kind;
        site.frames = std::move(frames);
        if (site.example.empty()) site.example = raw.example;
        add_counts(site.counts, raw.counts);
        add_counts(site.latency, raw.latency);
        add_counts(site.opens, raw.opens);
      }
      for (const auto& raw : section.bins) {
        if (raw.level != level || raw.number > UINT64_MAX / made.bin_width_ns) continue;
        ProfileBin& bin = bins[raw.number];
        bin.at_ns = raw.number * made.bin_width_ns;
        bin.busy_ns += raw.busy_ns;
        bin.calls += raw.calls;
      }
    }
  }
  for (auto& [key, site] : sites) made.sites.push_back(std::move(site));
  for (const auto& [number, bin] : bins) made.bins.push_back(bin);
  std::stable_sort(made.sites.begin(), made.sites.end(), [](const auto& a, const auto& b) {
    return std::pair(a.counts[shim::profile::k_origin_ns], a.counts[shim::profile::k_ns]) >
           std::pair(b.counts[shim::profile::k_origin_ns], b.counts[shim::profile::k_ns]);
  });
  return made;
}

std::string text_of_frame(const ProfileFrame& frame) {
  if (!frame.is_python())
    return frame.file.empty() ? frame.function : fmt::format("{} ({})", frame.function, frame.file);
  // The last two components of the path suffice to identify the file.
  std::size_t slash = frame.file.rfind('/');
  if (slash != std::string::npos && slash != 0) slash = frame.file.rfind('/', slash - 1);
  return fmt::format("{} ({}:{})", frame.function,
                     slash != std::string::npos ? frame.file.substr(slash + 1) : frame.file,
                     frame.line);
}

const ProfileFrame* own_function(const ProfileSite& site) {
  constexpr std::string_view k_libraries[] = {"/site-packages/", "/dist-packages/", "/lib/python3"};
  const auto is_library = [&](std::string_view file) {
    return file.starts_with("<frozen ") || file.ends_with("/sitecustomize.py") ||
           std::any_of(std::begin(k_libraries), std::end(k_libraries),
                       [&](auto part) { return file.find(part) != std::string_view::npos; });
  };
  const auto own = std::find_if(site.frames.rbegin(), site.frames.rend(), [&](const auto& frame) {
    return frame.is_python() && !is_library(frame.file);
  });
  return own != site.frames.rend() ? &*own : nullptr;
}

std::string text_of_site(const ProfileSite& site) {
  const bool has_python = std::any_of(site.frames.begin(), site.frames.end(),
                                      [](const auto& f) { return f.is_python(); });
  std::vector<const ProfileFrame*> shown;
  for (auto frame = site.frames.rbegin(); frame != site.frames.rend(); ++frame) {
    if (has_python ? frame->is_python() : !is_of_libc(*frame)) shown.push_back(&*frame);
  }
  if (shown.empty()) return "(unknown)";
  constexpr std::size_t k_shown = 3;
  const auto own = std::find(shown.begin(), shown.end(), own_function(site));
  const bool is_far =
      own != shown.end() && own - shown.begin() >= static_cast<std::ptrdiff_t>(k_shown);
  std::string text = text_of_frame(*shown[0]);
  for (std::size_t i = 1; i < std::min(shown.size(), is_far ? k_shown - 1 : k_shown); ++i)
    text += " < " + text_of_frame(*shown[i]);
  return is_far ? text + " .. " + text_of_frame(**own) : text;
}

std::string native_leaf(const ProfileSite& site) {
  // Without Python functions, text_of_site already shows native functions.
  if (std::none_of(site.frames.begin(), site.frames.end(),
                   [](const auto& frame) { return frame.is_python(); }))
    return "";
  const ProfileFrame* leaf = nullptr;
  for (auto frame = site.frames.rbegin(); frame != site.frames.rend() && !frame->is_python();
       ++frame) {
    if (is_of_libc(*frame)) continue;
    if (leaf == nullptr) leaf = &*frame;
    // Prefer a function with a name to a nameless function that it has called.
    if (frame->function.starts_with('+')) continue;
    leaf = &*frame;
    break;
  }
  if (leaf == nullptr) return "";
  return leaf->function.starts_with('+') ? leaf->file : text_of_frame(*leaf);
}

}  // namespace cube::cli
