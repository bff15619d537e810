// The library's own threads in this process, which prefetch and write to the disk. This file
// decides when they run; prefetch/threads/background_thread.h makes a single thread. Thread-safe.
#pragma once

#include <string_view>

#include "prefetch/work/block_reader.h"
#include "prefetch/work/metadata_scout.h"
#include "shim/process/process.h"

namespace cube::shim::own_threads {

// Starts the threads even if they are not needed yet. Returns false if there are no threads
// afterwards.
bool start();
// pause() ends all threads until resume(), and returns true if there were any. If a thread hangs at
// the origin, `is_left` waits for the thread for some time. `is_waited_for` waits until the thread
// ends, because a thread that continues would keep its old rights.
enum class Hanging : bool { is_left, is_waited_for };
bool pause(Hanging hanging = Hanging::is_left);
void resume();
// none -> busy -> running. `over` is final.
enum class State : int { none, busy, running, over };
extern constinit std::atomic<State> g_state;
// Offers that this process leads the prefetching, if there is something to prefetch on this node.
void offer_slow(cache::FileCache& cache);
inline void offer(cache::FileCache& cache) {
  if (g_state.load(std::memory_order_relaxed) == State::none) offer_slow(cache);
}
// Like offer, but for the threads that read large files ahead. Call this when a large file was
// opened.
void offer_to_read_ahead(cache::FileCache& cache);
// Returns the threads that read large files ahead. Null if these threads do not exist, or are being
// started or ended.
prefetch::BlockReader* reader();
// Gives work to the threads that gather metadata.
using Wish = prefetch::MetadataScout::Wish;
void wish_for(cache::FileCache& cache, Wish wish, std::string_view directory,
              std::string_view asked = {});
// If the directory of `key` has an entry of that name, gathers the stats of all its entries.
void gather_metadata_near(cache::FileCache& cache, std::string_view key);
// If the metadata threads run, they gather the stats of the directories that the program will visit
// after the directory of `key`.
void follow_metadata(std::string_view key);
// Allows a miss to start the thread that talks to the cluster.
void allow_cluster();
// Ends all threads for good. If a thread hangs at the origin, `is_waited_for` waits for it for some
// time, and `is_left` does not wait.
void end_for_good(Hanging hanging = Hanging::is_waited_for);
// The first thread of the process calls this. After that thread has ended (pthread_exit), libc ends
// the process with its last thread. So our threads then end for good, and a thread of the program
// is the last.
void end_with_this_thread();
// Call this in the child of a fork, which has none of these threads.
void become_child();

}  // namespace cube::shim::own_threads
