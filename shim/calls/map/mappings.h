// The program's mappings of served files. A mapping shows pages of the region, or a copy if the
// region's bytes may be replaced later (mapped_copy.h). A small file's record is laid out again
// when the file is first mapped. Until all of a mapping is unmapped, it has a row with its address
// and with the pin or the large file that keeps its pages. Thread-safe and async-signal-safe.
// Invariants: the program cannot write to the region through a mapping, even after mprotect,
// because the region's fd was opened read-only. A mapping never shows bytes past the file's last
// page, even after it is moved or resized.
#pragma once

#include <cstddef>
#include <optional>

#include "shim/calls/map/map_request.h"
#include "shim/fd/open_file.h"

namespace cube::shim::mappings {

struct MappingRow;

enum class MapResult {
  done,     // `result` holds the address or -errno
  not_here  // the kernel must map a kernel file
};
MapResult map(OpenFile& file, const MapRequest& request, long& result);

// A row of the table for a mapping of a large file. Reserve it before the mapping shows the region:
// without a row, a mapping that grows would show the bytes that follow in the region.
class NewRow {
 public:
  // Takes a free row of the table. If none is left, the object converts to false, and the kernel
  // must map the origin's file.
  NewRow();
  NewRow(const NewRow&) = delete;
  NewRow& operator=(const NewRow&) = delete;
  ~NewRow();
  explicit operator bool() const { return row_ != nullptr; }
  // Notes that the program has mapped `file` at `at`, as `request` says. Call it at most once, and
  // only with a row. The pages that the mapping shows stay in their places in the region. If the
  // mapping grows, the kernel maps the added part. `pieces` is how many of the pieces from
  // take_pieces() the mapping shows.
  void note(std::uintptr_t at, const MapRequest& request, cache::LargeFile& file,
            std::size_t pieces);

 private:
  MappingRow* row_;
};

// Maps a part of the region's file. Afterwards, call NewRow::note, which enters the mapping in the
// table. Returns the address or -errno. -ESTALE: the kernel must map the origin's file instead;
// with MAP_FIXED, the old mapping may be gone.
long map_region(cache::Region& region, const MapRequest& request, std::uint64_t offset);
// Maps a piece of the region through `fd` (region_fd.h), over a mapping that the program does not
// know yet. Sets `is_shown` if that has succeeded. Returns false if the fd no longer refers to the
// region; the address may then show another file.
bool show_piece(cache::Region& region, int fd, const MapRequest& piece, std::uint64_t offset,
                bool& is_shown);
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
