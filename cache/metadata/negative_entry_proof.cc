#include "cache/metadata/negative_entry_proof.h"

#include <linux/magic.h>
#include <sys/vfs.h>

#include <algorithm>
#include <climits>

#include "cache/base/sys.h"

namespace cube::cache {
namespace {

namespace sys = base::sys;

// A lookup of an ASCII name may find an entry with other characters: "K" may find the Kelvin sign,
// and "ab" a name with an invisible hyphen between a and b.
bool is_ascii(std::string_view name) {
  return std::all_of(name.begin(), name.end(),
                     [](char c) { return static_cast<signed char>(c) > 0; });
}

}  // namespace

bool may_be_negative(std::string_view name) {
  // Excludes hidden names, names that some file systems cut or shorten (PROGRA~1), and names with
  // two Unicode forms.
  if (name.empty() || name.size() > NAME_MAX || name.front() == '.' || name.back() == '.')
    return false;
  return std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c < '~'; });
}

bool NegativeEntryProof::makes_names_when_asked(int directory, std::uint64_t device) {
  if (const auto known = known_.find(device)) return *known;
  struct ::statfs fs {};
  if (sys::failed(sys::raw(SYS_fstatfs, directory, sys::arg(&fs)))) return true;
  const bool makes = fs.f_type == AUTOFS_SUPER_MAGIC;
  known_.note(device, makes);
  return makes;
}

bool NegativeEntryProof::proves_negative_entries(int directory, std::uint64_t device,
                                                 std::span<const std::byte> entries) {
  // An empty listing proves nothing, because the file system may still find names.
  bool lists_any = false;
  DirectoryData::Entry entry;
  for (DirectoryData::Reader reader(entries); reader.next(entry);) {
    if (!is_ascii(entry.name)) return false;
    lists_any = lists_any || !entry.is_dots();
  }
  return lists_any && !makes_names_when_asked(directory, device);
}

}  // namespace cube::cache
