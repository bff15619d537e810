// Leaves room for other programs that use the region's file system (a data loader's batches, NCCL,
// MPI) or the machine's memory. A program that cannot get a page dies (SIGBUS, the OOM killer). So
// the region takes no memory that other programs may need. If other programs need more later, the
// region gives segments back: first empty segments, then segments that have been read, then all
// others, metadata included.
//
// Invariants: a segment or a chunk that a process has a pin on, or that a program has ever mapped,
// keeps its bytes. A segment or chunk that is given back counts as evicted before its memory is
// released, so no lookup finds it. If a process dies while it gives segments back, other processes
// can still lease these segments. Giving back needs no fd, and works even if the region has lost
// its name. Thread-safe, also across processes. No locks, no allocation.
#pragma once

#include <cstdint>

namespace cube::cache {

class Region;

// Checks whether enough is free, and gives back the missing amount. Call it before each fetch, and
// from time to time in threads that wait. A call costs almost nothing if a process of the node has
// just checked.
void keep_room_for_others(Region& region);

// Gives back up to this many bytes. Returns how many bytes it gave back.
std::uint64_t give_back(Region& region, std::uint64_t bytes);

// Call it when the region's file system has refused this many bytes to a program: gives back the
// missing bytes. False: the region cannot give back that much.
bool give_back_for(Region& region, std::uint64_t bytes);

// How often the library's threads call keep_room_for_others.
inline constexpr std::uint64_t k_look_at_room_ns = 100'000'000;

}  // namespace cube::cache
