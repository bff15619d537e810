// The program's mappings of served files: pages of the region itself, or a copy in a file of its
// own if the region's bytes may be replaced later (mapped_copy.h). A small file whose record is not
// laid out for mapping is laid out again at its first mapping. Each mapping has a row with its
// address and a pin, until all of it is unmapped. Thread-safe and async-signal-safe. Invariants: a
// mapping of the region is never made writable by mprotect, because its fd was opened read-only;
// and it never shows what lies past the file's last page, even after it is moved or resized.
#pragma once

#include <cstddef>
#include <optional>

#include "shim/calls/map/map_request.h"
#include "shim/fd/open_file.h"

namespace cube::shim::mappings {

enum class MapResult {
  done,     // `result` holds the address or -errno
  not_here  // the kernel must do it, on a real file
};
MapResult map(OpenFile& file, const MapRequest& request, long& result);

// Maps a part of the region's file; note_mapping then enters it in the table. Returns the address
// or -errno.
long map_region(cache::Region& region, const MapRequest& request, std::uint64_t offset);
// Maps a piece of the region through `fd` (region_fd.h), over a mapping that has not been returned
// to the program yet. Returns false if the fd no longer refers to the region; any file may then be
// mapped there.
bool show_piece(cache::Region& region, int fd, const MapRequest& piece, std::uint64_t offset,
                bool& is_shown);
// Notes that the program has mapped a large file there, as `request` says; its pages stay in place.
// If the mapping grows, the kernel maps the rest. `pieces` is how many of the pieces taken it
// shows. Returns false if no row is left; the mapping must not show the region then.
bool note_mapping(std::uintptr_t at, const MapRequest& request, cache::LargeFile& file,
                  std::size_t pieces);
// Takes at most `most` pieces of the region for a mapping, and returns how many; the number of
// mappings of a process is limited.
std::size_t take_pieces(std::size_t most);
void give_pieces_back(std::size_t count);

// The program has unmapped or replaced these pages, or is about to.
void unmapped(void* at, std::size_t length);

// The kernel has taken this advice (MADV_NORMAL, RANDOM, SEQUENTIAL, WILLNEED) for these pages.
void advised(void* at, std::size_t length, int advice);

struct RemapRequest {
  void* at;
  std::size_t old_size, new_size;
  int flags;
  void* to;
};
// Returns the address or -errno, or nothing if none of our mappings is affected.
std::optional<long> remap(const RemapRequest& request);

extern constinit std::atomic<int> g_count;
inline bool any() { return g_count.load(std::memory_order_acquire) != 0; }
// For a forked child: the pins belong to the parent, the mappings to both. (A segment with mapped
// records is never reclaimed: Ring::note_mapped.)
void forget_after_fork();

}  // namespace cube::shim::mappings
