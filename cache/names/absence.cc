#include "cache/names/absence.h"

#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include "cache/base/sys.h"

namespace cube::cache {
namespace {

namespace sys = base::sys;

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

bool is_listed(std::span<const std::byte> entries, std::string_view name) {
  DirectoryData::Entry entry;
  for (DirectoryData::Reader reader(entries); reader.next(entry);) {
    if (entry.name == name) return true;
  }
  return false;
}

bool lists_any(std::span<const std::byte> entries) {
  DirectoryData::Entry entry;
  for (DirectoryData::Reader reader(entries); reader.next(entry);) {
    if (!entry.is_dots()) return true;
  }
  return false;
}

// The name with each letter in the other case. False: it has none.
bool swap_case(std::string_view name, char (&swapped)[NAME_MAX + 1]) {
  if (name.size() > NAME_MAX || !std::any_of(name.begin(), name.end(), is_letter)) return false;
  std::transform(name.begin(), name.end(), swapped, [](char c) { return is_letter(c) ? static_cast<char>(c ^ 0x20) : c; });
  swapped[name.size()] = '\0';
  return true;
}

}  // namespace

bool may_be_told_absent(std::string_view name) {
  // A hidden name; one that some file systems cut; one of which there are two forms.
  if (name.empty() || name.size() > NAME_MAX || name.front() == '.' || name.back() == '.') return false;
  return std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c <= '~'; });
}

AbsenceTrial::Verdict AbsenceTrial::ask(int directory, std::span<const std::byte> entries) {
  struct ::statfs fs {};
  if (sys::failed(sys::raw(SYS_fstatfs, directory, sys::arg(&fs)))) return Verdict::unknown;
  // Its names come when they are asked for.
  if (fs.f_type == AUTOFS_SUPER_MAGIC) return Verdict::no;
  char swapped[NAME_MAX + 1];
  DirectoryData::Entry entry;
  for (DirectoryData::Reader reader(entries); reader.next(entry);) {
    if (!may_be_told_absent(entry.name) || !swap_case(entry.name, swapped)) continue;
    struct ::statx x {};
    const long there =
        sys::raw(SYS_statx, directory, sys::arg(swapped), AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, STATX_TYPE, sys::arg(&x));
    if (there == -ENOENT) return Verdict::yes;
    if (sys::failed(there)) return Verdict::unknown;
    // Both may be listed, which proves nothing.
    if (!is_listed(entries, swapped)) return Verdict::no;
  }
  return Verdict::unknown;
}

bool AbsenceTrial::is_known_to_tell(std::uint64_t device) const {
  const std::uint64_t word = (device + 1) << 2 | static_cast<std::uint64_t>(Verdict::yes);
  return std::any_of(std::begin(known_), std::end(known_),
                     [&](const auto& known) { return known.load(std::memory_order_relaxed) == word; });
}

bool AbsenceTrial::tells_absence(int directory, std::uint64_t device, std::span<const std::byte> entries) {
  // A file system that lists nothing may find names all the same.
  if (!lists_any(entries)) return false;
  const std::uint64_t word = (device + 1) << 2;
  for (const auto& known : known_) {
    const std::uint64_t found = known.load(std::memory_order_relaxed);
    if ((found & ~3ULL) == word) return (found & 3) == static_cast<std::uint64_t>(Verdict::yes);
  }
  const Verdict verdict = ask(directory, entries);
  if (verdict == Verdict::unknown) return false;
  for (auto& known : known_) {
    std::uint64_t none = 0;
    if (known.compare_exchange_strong(none, word | static_cast<std::uint64_t>(verdict), std::memory_order_relaxed)) break;
  }
  return verdict == Verdict::yes;
}

}  // namespace cube::cache
