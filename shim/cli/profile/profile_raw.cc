#include "shim/cli/profile/profile_raw.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "cache/base/words.h"

namespace cube::cli {
namespace {

using base::number_of;

// Counts are limited to this value, so that their sum over many sites does not overflow.
constexpr std::uint64_t k_largest_count = 1ULL << 53;
constexpr std::size_t k_most_rows = 1 << 20;

std::vector<std::string_view> split(std::string_view text, char between, std::size_t most) {
  std::vector<std::string_view> parts;
  while (parts.size() < most) {
    const std::size_t end = text.find(between);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
  parts.clear();  // there are more parts than the limit
  return parts;
}

std::string plain(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out += text[i];
      continue;
    }
    const char letter = text[++i];
    out += letter == 'n' ? '\n' : letter == 't' ? '\t' : letter;
  }
  return out;
}

// Returns true if the text consists of exactly N numbers.
template <std::size_t N>
bool read_counts(std::string_view text, std::array<std::uint64_t, N>& counts) {
  const auto parts = split(text, ',', N + 1);
  if (parts.size() != N) return false;
  for (std::size_t i = 0; i < N; ++i) {
    const auto number = number_of(parts[i]);
    if (!number) return false;
    counts[i] = std::min(*number, k_largest_count);
  }
  return true;
}

template <typename Number>
bool read_list(std::string_view text, int base, std::size_t most, std::vector<Number>& list) {
  if (text == "-") return true;
  for (const auto part : split(text, ',', most + 1)) {
    const auto number = number_of(part, base);
    if (!number || list.size() == most) return false;
    list.push_back(static_cast<Number>(*number));
  }
  return !list.empty();
}

// Parses "BEGIN-END r-xp OFFSET DEVICE INODE PATH".
bool read_map(std::string_view line, RawSection& section) {
  const std::size_t slash = line.find('/'), dash = line.find('-'), space = line.find(' ');
  if (slash == std::string_view::npos || dash >= space) return false;
  const auto fields = split(line.substr(0, slash), ' ', 64);
  if (fields.size() < 3) return false;
  const auto begin = number_of(line.substr(0, dash), 16),
             end = number_of(line.substr(dash + 1, space - dash - 1), 16);
  const auto offset = number_of(fields[2], 16);
  if (!begin || !end || !offset || *begin >= *end) return false;
  section.maps.push_back({*begin, *end, *offset, plain(line.substr(slash))});
  return true;
}

bool read_site(const std::vector<std::string_view>& f, RawSection& section) {
  RawSite site;
  const auto* const kind = std::find(std::begin(shim::profile::k_kind_names),
                                     std::end(shim::profile::k_kind_names), f[2]);
  if (kind == std::end(shim::profile::k_kind_names)) return false;
  site.kind = static_cast<std::size_t>(kind - std::begin(shim::profile::k_kind_names));
  site.example = plain(f[3]);
  if (!read_list(f[4], 16, shim::profile::k_most_native, site.native) ||
      !read_list(f[5], 10, shim::profile::k_most_python, site.python))
    return false;
  if (!read_counts(f[6], site.counts) || !read_counts(f[7], site.latency)) return false;
  if (f[8] != "-" && !read_counts(f[8], site.opens)) return false;
  section.sites.push_back(std::move(site));
  return true;
}

bool read_line(const std::vector<std::string_view>& f, RawSection& section) {
  if (f[0] == "end") return section.is_whole = true;
  if (f[0] == "map" && f.size() == 2)
    return section.maps.size() < k_most_rows && read_map(f[1], section);
  if (f[0] == "dropped" && f.size() == 2) return read_counts(f[1], section.dropped);
  if (f[0] == "cost" && f.size() == 2) return read_counts(f[1], section.cost);
  if (f[0] == "site" && f.size() == 9)
    return section.sites.size() < k_most_rows && read_site(f, section);
  if (f[0] == "file" && f.size() == 3) {
    RawUse use;
    const auto hash = number_of(f[1], 16);
    if (!hash || section.files.size() >= k_most_rows || !read_counts(f[2], use.counts))
      return false;
    use.path_hash = *hash;
    section.files.push_back(use);
    return true;
  }
  if (f[0] == "code" && f.size() == 5) {
    const auto number = number_of(f[1]), line = number_of(f[2]);
    if (!number || !line || section.codes.size() >= k_most_rows) return false;
    section.codes[static_cast<std::uint32_t>(*number)] = {static_cast<std::uint32_t>(*line),
                                                          plain(f[3]), plain(f[4])};
    return true;
  }
  if (f[0] == "bin" && f.size() == 5) {
    const auto level = number_of(f[1]), number = number_of(f[2]), busy = number_of(f[3]),
               calls = number_of(f[4]);
    if (!level || !number || !busy || !calls || *level >= shim::profile::k_bin_levels ||
        section.bins.size() >= k_most_rows)
      return false;
    section.bins.push_back({static_cast<std::size_t>(*level), *number,
                            std::min(*busy, k_largest_count), std::min(*calls, k_largest_count)});
    return true;
  }
  return false;
}

std::optional<RawSection> read_head(const std::vector<std::string_view>& f) {
  if (f.size() != 8 || number_of(f[1]) != shim::profile::k_raw_version) return std::nullopt;
  const auto pid = number_of(f[2]), start = number_of(f[4]), end = number_of(f[5]),
             every = number_of(f[6]);
  if (!pid || !start || !end || !every || *start > *end) return std::nullopt;
  RawSection section;
  section.pid = *pid;
  section.start_ns = *start;
  section.end_ns = *end;
  section.every = *every;
  section.observes = f[7] == "1";
  return section;
}

}  // namespace

RawFile parse_raw(std::string_view text) {
  RawFile file;
  bool is_ours = false;  // false in a section of another version, which is skipped
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const auto fields = split(line, '\t', 16);
    if (!fields.empty() && fields[0] == shim::profile::k_raw_head) {
      auto section = read_head(fields);
      is_ours = section.has_value();
      if (section) file.sections.push_back(std::move(*section));
      if (is_ours) continue;
      ++file.bad_lines;
      if (fields.size() > 1 && number_of(fields[1]) != shim::profile::k_raw_version)
        ++file.other_versions;
    } else if (!is_ours || fields.empty() || !read_line(fields, file.sections.back())) {
      ++file.bad_lines;
    }
  }
  return file;
}

}  // namespace cube::cli
