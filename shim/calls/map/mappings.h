// The program's mappings of served files. A mapping shows pages of the region, or a copy if the
// region's bytes may be replaced later (mapped_copy.h). A small file whose record is not laid out
// for mapping is laid out again at its first mapping. Each mapping has a row with its address and a
// pin until all of it is unmapped. Thread-safe and async-signal-safe. Invariants: mprotect cannot
// make a mapping of the region writable, because the region's fd was opened read-only. A mapping
// never shows bytes past the file's last page, even after it is moved or resized.
#pragma once

#include <cstddef>
#include <optional>

#include "shim/calls/map/map_request.h"
#include "shim/fd/open_file.h"

namespace cube::shim::mappings {

enum class MapResult {
  done,     // `result` holds the address or -errno
  not_here  // the kernel must map a kernel file
};
MapResult map(OpenFile& file, const MapRequest& request, long& result);

// Maps a part of the region's file. Afterwards, call note_mapping, which enters the mapping in the
// table. Returns the address or -errno.
long map_region(cache::Region& region, const MapRequest& request, std::uint64_t offset);
// Maps a piece of the region through `fd` (region_fd.h), over a mapping that the program does not
// know yet. Returns false if the fd no longer refers to the region; the address then shows some
// other file.
bool show_piece(cache::Region& region, int fd, const MapRequest& piece, std::uint64_t offset,
                bool& is_shown);
// Notes that the program has mapped a large file at `at`, as `request` says. The pages that it
// shows stay in their places in the region. If the mapping grows, the kernel maps the added part.
// `pieces` is the number of pieces from take_pieces() that the mapping shows. Returns false if no
// row is left; the mapping must then not show the region.
bool note_mapping(std::uintptr_t at, const MapRequest& request, cache::LargeFile& file,
                  std::size_t pieces);
// Reserves up to `most` pieces of the region for a mapping, because the kernel limits the number of
// mappings of a process. Returns the number reserved.
std::size_t take_pieces(std::size_t most);
void give_pieces_back(std::size_t count);

// Call this when the program unmaps or replaces these pages.
void unmapped(void* at, std::size_t length);

// Call this after the kernel has accepted this advice (MADV_NORMAL, RANDOM, SEQUENTIAL, WILLNEED)
// for these pages.
void advised(void* at, std::size_t length, int advice);

struct RemapRequest {
  void* at;
  std::size_t old_size, new_size;
  int flags;
  void* to;
};
// Returns the address or -errno. Returns nothing if the request affects no mapping of a served
// file.
std::optional<long> remap(const RemapRequest& request);

extern constinit std::atomic<int> g_count;
inline bool any() { return g_count.load(std::memory_order_acquire) != 0; }
// Call this in a forked child. The pins belong to the parent; the mappings exist in both processes.
// A segment with mapped records is never reclaimed (Ring::note_mapped).
void forget_after_fork();

}  // namespace cube::shim::mappings
