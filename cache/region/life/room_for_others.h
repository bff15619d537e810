// Leaves room for others that use the region's file system (a data loader's batches, NCCL, MPI) or
// need the memory that the region takes. A program that gets no page there dies (SIGBUS, the OOM
// killer). So the region takes no segment that others may need, and gives segments back when they
// need more later: first empty ones, then those that have been read, then the rest, metadata last.
//
// Invariants: a segment or a chunk that a process has a pin on, or that a program has ever mapped,
// keeps its bytes. A segment or chunk that is given back counts as evicted before its memory is
// released, so no lookup finds it. A process that dies in between leaves segments that can be
// leased. Neither an fd nor the region's name is needed. Thread-safe, across processes too. No
// locks, no allocation.
#pragma once

#include <cstdint>

namespace cube::cache {

class Region;

// Checks whether enough is free, and gives back what is missing. Call it before each fetch, and now
// and then from threads that wait: it costs nothing if any process of the node has checked a moment
// ago.
void keep_room_for_others(Region& region);

// Gives back this many bytes, if it can. Returns how many it gave back.
std::uint64_t give_back(Region& region, std::uint64_t bytes);

// Call it when the region's file system has refused this many bytes to a program: gives back the
// missing bytes. False: the region cannot give back that much.
bool give_back_for(Region& region, std::uint64_t bytes);

// How often the library's threads call keep_room_for_others.
inline constexpr std::uint64_t k_look_at_room_ns = 100'000'000;

}  // namespace cube::cache
