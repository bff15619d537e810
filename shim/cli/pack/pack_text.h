// The common part of the commands about packs: paths as users type them, names as they are printed,
// data as it is read. Thread safety: pure functions.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "cache/pack/pack_reader.h"
#include "shim/cli/printable.h"

namespace cube::cli {

// "a/b" for "/a//b/", "./a/b" and "a/c/../b"; "" is the root of the pack.
std::string path_in_pack(const std::string& text);
// True for the same path and for one below it; everything is below "".
bool is_below(std::string_view path, std::string_view directory);
// The path, or "the root" for "".
std::string shown(std::string_view path);
// Returns the text for an error of find or read: "not in the pack", "damaged", or the text of the
// errno.
std::string pack_error(int error);
// "is not in the pack", "cannot be given out: No space left on device".
std::string pack_trouble(int error);

// Passes all data of an entry to `take`, in parts, each only after it was checked. Returns 0 or an
// errno, and stops if `take` returns one.
int read_checked(
    const cache::PackReader& pack, const cache::PackEntry& entry,
    const std::function<int(const std::byte* data, std::size_t n, std::uint64_t at)>& take);
// Like read_checked, but only checks that the data is what was packed.
int check_data(const cache::PackReader& pack, const cache::PackEntry& entry);

// Returns the data as a text: a link's target or a directory's listing. If it is damaged, returns
// nothing and sets errno.
std::string read_text(const cache::PackReader& pack, const cache::PackEntry& entry, int& error);

}  // namespace cube::cli
