// An arbitrary list of paths. The reader must not return a path outside the prefix, and must
// account for all entries: each entry is given, walked, refused for a reason, or not an entry.
// Input: the list.
#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <vector>

#include "cache/base/path.h"
#include "prefetch/order/path_list.h"
#include "tests/fuzz/fuzz.h"

namespace cube::prefetch {
namespace {

// Makes a small tree at the first call: two files, a directory with two more files, and a link out
// of the prefix.
const std::string& prefix() {
  static const auto* const path = [] {
    const auto* const made = new std::string(fuzz::directory() + "/data");
    mkdir(made->c_str(), 0700);
    mkdir((*made + "/d").c_str(), 0700);
    for (const auto* const name : {"/a", "/b", "/d/c", "/d/e"}) fuzz::write_file(*made + name, "x");
    const std::string outside = fuzz::directory() + "/outside";
    mkdir(outside.c_str(), 0700);
    fuzz::write_file(outside + "/f", "x");
    FUZZ_CHECK(symlink(outside.c_str(), (*made + "/out").c_str()) == 0, "errno %d", errno);
    return made;
  }();
  return *path;
}

void check_entries(const std::string& list, std::string_view text) {
  std::string why;
  auto reader = ListEntries::open(list.c_str(), why);
  FUZZ_CHECK(reader.has_value(), "%s", why.c_str());
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  const char separator = reader->is_nul_separated() ? '\0' : '\n';
  std::string_view entry;
  std::uint64_t line = 0;
  while (true) {
    const auto got = reader->next(entry);
    FUZZ_CHECK(got != ListEntries::Got::error, "errno %d", reader->error());
    if (got == ListEntries::Got::end) break;
    FUZZ_CHECK(reader->line() == ++line, "line %llu",
               static_cast<unsigned long long>(reader->line()));
    const std::size_t end = std::min(text.find(separator), text.size());
    std::string_view expected = text.substr(0, end);
    // "\r\n" also ends a line; an "\r" at the end of the file without "\n" does not.
    if (separator == '\n' && end < text.size() && expected.ends_with('\r'))
      expected.remove_suffix(1);
    if (got == ListEntries::Got::too_long) {
      FUZZ_CHECK(expected.size() > PATH_MAX + 2 && expected.starts_with(entry.substr(0, PATH_MAX)),
                 "line %zu", entry.size());
    } else {
      FUZZ_CHECK(entry == expected, "line %llu: %zu bytes for %zu",
                 static_cast<unsigned long long>(line), entry.size(), expected.size());
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  FUZZ_CHECK(text.empty(), "%zu bytes are left over", text.size());
  FUZZ_CHECK(!reader->has_changed(), "nobody changed it");
}

// Counts the lines that are entries, as the document and the header define them.
std::size_t count_entries(std::string_view text) {
  const bool has_nul = text.find('\0') != std::string_view::npos;
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  std::size_t count = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(has_nul ? '\0' : '\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (!has_nul && end < text.size() && line.ends_with('\r')) line.remove_suffix(1);
    if (has_nul || (!line.empty() && line.front() != '#' && line.front() != '-')) ++count;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return count;
}

void check_paths(const std::string& list, std::string_view text, bool look_at_each) {
  std::string why;
  const auto paths = PathList::open({list, {prefix()}, look_at_each}, why);
  FUZZ_CHECK(paths != nullptr, "%s", why.c_str());
  PathEntry entry;
  std::uint64_t given = 0;
  PathList::Next next;
  while ((next = paths->next(entry)) == PathList::Next::entry) {
    const std::string path = entry.path;
    FUZZ_CHECK(base::is_at_or_below(path, prefix()) && path.size() < PATH_MAX, "%s", path.c_str());
    FUZZ_CHECK(
        (path + "/").find("/../") == std::string::npos && path.find("//") == std::string::npos,
        "%s", path.c_str());
    FUZZ_CHECK(entry.sequence == given++, "%llu", static_cast<unsigned long long>(entry.sequence));
    struct ::stat st {};
    FUZZ_CHECK(!look_at_each || (stat(path.c_str(), &st) == 0 && S_ISREG(st.st_mode)),
               "%s is no file", path.c_str());
    FUZZ_CHECK(given <= 4 * text.size() + 1, "without end");
  }
  FUZZ_CHECK(next == PathList::Next::end, "errno %d", paths->error());
  std::uint64_t accounted = given;
  for (std::size_t i = 0; i < k_refusals; ++i) {
    const auto reason = static_cast<Refusal>(i);
    accounted += paths->refusals().of(reason);
    FUZZ_CHECK(paths->refusals().text(reason).size() < 1000, "a long line");
  }
  // A line for a directory yields several entries, or none if the directory has no files.
  const bool may_walk = look_at_each || text.find('/') != std::string_view::npos;
  FUZZ_CHECK(may_walk || accounted >= count_entries(text), "%llu of %zu",
             static_cast<unsigned long long>(accounted), count_entries(text));
}

}  // namespace
}  // namespace cube::prefetch

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  cube::prefetch::prefix();
  const std::string list = cube::fuzz::directory() + "/list";
  cube::fuzz::write_file(list, text);
  cube::prefetch::check_entries(list, text);
  cube::prefetch::check_paths(list, text, false);
  cube::prefetch::check_paths(list, text, true);
  return 0;
}
