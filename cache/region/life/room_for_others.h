// The other users of the file system in which the region lies (a data loader's batches, NCCL, MPI),
// and of the memory that it takes. A program that gets no page there dies (SIGBUS, the OOM killer).
// So the region takes no segment that they may need, and gives segments back when they need more
// later. First goes memory that holds nothing, then what has been read, then the rest, names last.
//
// Invariants: a segment or a chunk that somebody has a claim on, or that a program has ever mapped,
// keeps its bytes. What is given back counts as evicted before its memory goes, so nobody finds it.
// A process that dies in between leaves segments that can be leased. Neither an fd nor the region's
// name is needed. Thread safety: all of it, between threads and processes. No locks, no allocation.
#pragma once

#include <cstdint>

namespace cube::cache {

class Region;

// Looks whether enough is free, and gives back what is missing. Before each fetch, and now and then
// by threads that wait: it costs nothing if any process of the node has looked a moment ago.
void keep_room_for_others(Region& region);

// Gives back so many bytes, if it can. Returns how many.
std::uint64_t give_back(Region& region, std::uint64_t bytes);

// Threads beside the programs call keep_room_for_others so often.
inline constexpr std::uint64_t k_look_at_room_ns = 100'000'000;

}  // namespace cube::cache
