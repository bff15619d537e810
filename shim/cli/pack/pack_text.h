// The common part of the commands about packs: paths as they are typed, names as they are printed,
// data as it is read. Thread safety: pure functions.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "cache/pack/pack_reader.h"
#include "shim/cli/printable.h"

namespace cube::cli {

// "a/b" of "/a//b/", "./a/b", "a/c/../b"; "" is the root of the pack.
std::string path_in_pack(const std::string& text);
// The same path, or one below it; everything is below "".
bool is_below(std::string_view path, std::string_view directory);
// "the root" of "".
std::string shown(std::string_view path);
// The text of an error of find or read: "not in the pack", "damaged", or the error's own.
std::string pack_error(int error);
// "is not in the pack", "cannot be given out: No space left on device".
std::string pack_trouble(int error);

// All data of an entry, in parts, to where it is wanted. Nothing is given away that was not checked
// before. 0, or an errno; that of `take` ends it.
int read_checked(
    const cache::PackReader& pack, const cache::PackEntry& entry,
    const std::function<int(const std::byte* data, std::size_t n, std::uint64_t at)>& take);
// The same, checked only: is it what was packed?
int check_data(const cache::PackReader& pack, const cache::PackEntry& entry);

// As a text: a link's target, or a directory's listing. Empty and an errno where it is damaged.
std::string read_text(const cache::PackReader& pack, const cache::PackEntry& entry, int& error);

}  // namespace cube::cli
