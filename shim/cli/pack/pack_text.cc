#include "shim/cli/pack/pack_text.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "cache/base/error_text.h"
#include "cache/base/path.h"
#include "prefetch/order/list_paths.h"

namespace cube::cli {
namespace {

constexpr std::uint64_t k_at_once = 16 << 20;

using Part = std::function<int(const std::byte*, std::size_t, std::uint64_t)>;

// Reads the data once, and checks its hash.
int go_through(const cache::PackReader& pack, const cache::PackEntry& entry, std::byte* room,
               const Part& take) {
  base::Hasher hasher;
  for (std::uint64_t at = 0; at < entry.data_size;) {
    const auto got = pack.read_part(entry, at, room, k_at_once);
    if (!got) return got.error().value;
    hasher.add(room, *got);
    if (const int error = take(room, *got, at); error != 0) return error;
    at += *got;
  }
  return hasher.value() == entry.data_hash ? 0 : EBADMSG;
}

int ignore(const std::byte*, std::size_t, std::uint64_t) { return 0; }

}  // namespace

std::string path_in_pack(const std::string& text) {
  std::string path;
  if (prefetch::fold_path("", text, path) != prefetch::Folded::ok) return text;
  return path.substr(1);
}

bool is_below(std::string_view path, std::string_view directory) {
  return directory.empty() || base::is_at_or_below(path, directory);
}

std::string shown(std::string_view path) { return path.empty() ? "the root" : printable(path); }

std::string pack_error(int error) {
  return error == ENOENT    ? "not in the pack"
         : error == EBADMSG ? "damaged in the pack"
                            : base::text_of_error(error);
}

std::string pack_trouble(int error) {
  return (error == ENOENT || error == EBADMSG ? "is " : "cannot be given out: ") +
         pack_error(error);
}

int check_data(const cache::PackReader& pack, const cache::PackEntry& entry) {
  const auto room =
      std::make_unique_for_overwrite<std::byte[]>(std::min(entry.data_size, k_at_once));
  return go_through(pack, entry, room.get(), ignore);
}

int read_checked(const cache::PackReader& pack, const cache::PackEntry& entry, const Part& take) {
  const auto room =
      std::make_unique_for_overwrite<std::byte[]>(std::min(entry.data_size, k_at_once));
  if (entry.data_size <= k_at_once) {
    const auto read = pack.read(entry, room.get());
    if (!read) return read.error().value;
    return entry.data_size == 0 ? 0 : take(room.get(), entry.data_size, 0);
  }
  // The data does not fit into memory, so it is read twice: first to check it, then to pass it on.
  const int error = go_through(pack, entry, room.get(), ignore);
  return error != 0 ? error : go_through(pack, entry, room.get(), take);
}

std::string read_text(const cache::PackReader& pack, const cache::PackEntry& entry, int& error) {
  std::string text;
  error = 0;
  try {
    text.resize(entry.data_size);
  } catch (const std::exception&) {
    error = ENOMEM;
    return {};
  }
  const auto read = pack.read(entry, reinterpret_cast<std::byte*>(text.data()));
  if (read) return text;
  error = read.error().value;
  return {};
}

}  // namespace cube::cli
