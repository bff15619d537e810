// The common part of the commands for packs: parsing paths, printing names and reading data. Thread
// safety: pure functions.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "cache/pack/pack_reader.h"
#include "shim/cli/printable.h"

namespace cube::cli {

// Returns "a/b" for "/a//b/", "./a/b" and "a/c/../b". "" means the root of the pack.
std::string path_in_pack(const std::string& text);
// True if the path is the directory, or lies below it. Every path is below "".
bool is_below(std::string_view path, std::string_view directory);
// Returns the path, or "the root" for "".
std::string shown(std::string_view path);
// Returns the text for an error of a find or a read: "not in the pack", "damaged", or the text of
// the errno.
std::string pack_error(int error);
// Returns a predicate, such as "is not in the pack" or "cannot be given out: No space left on
// device".
std::string pack_trouble(int error);

// Passes all data of an entry to `take` in parts. Each part is checked before it is passed. Returns
// 0 or an errno. If `take` returns an errno, stops and returns it.
int read_checked(
    const cache::PackReader& pack, const cache::PackEntry& entry,
    const std::function<int(const std::byte* data, std::size_t n, std::uint64_t at)>& take);
// Like read_checked, but only checks the data.
int check_data(const cache::PackReader& pack, const cache::PackEntry& entry);

// Returns the data of a link (its target) or of a directory (its listing). If the data is damaged,
// returns an empty string and sets `error`.
std::string read_text(const cache::PackReader& pack, const cache::PackEntry& entry, int& error);

}  // namespace cube::cli
