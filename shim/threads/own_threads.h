// The library's own threads in this process, all together: they prefetch and write to the disk.
// This file decides when they run; prefetch/threads/background_thread.h makes one of them.
// Thread-safe.
#pragma once

#include <string_view>

#include "prefetch/work/block_reader.h"
#include "prefetch/work/metadata_scout.h"
#include "shim/process/process.h"

namespace cube::shim::own_threads {

// Starts the threads even if they are not needed yet. Returns false if there are none.
bool start();
// pause() ends all threads until resume(), and returns whether there were any. If a thread hangs at
// the origin, pause() waits for some time, or until the thread ends, because a thread that goes on
// keeps its old rights.
enum class Hanging : bool { is_left, is_waited_for };
bool pause(Hanging hanging = Hanging::is_left);
void resume();
// none -> busy -> running; over is final.
enum class State : int { none, busy, running, over };
extern constinit std::atomic<State> g_state;
// Offers to lead if there is something to prefetch on this node.
void offer_slow(cache::FileCache& cache);
inline void offer(cache::FileCache& cache) {
  if (g_state.load(std::memory_order_relaxed) == State::none) offer_slow(cache);
}
// Like offer, but for the threads that read large files ahead, when such a file was opened.
void offer_to_read_ahead(cache::FileCache& cache);
// These threads. Null if there are none, or while they are being started or ended.
prefetch::BlockReader* reader();
// Work for the threads that gather metadata.
using Wish = prefetch::MetadataScout::Wish;
void wish_for(cache::FileCache& cache, Wish wish, std::string_view directory,
              std::string_view asked = {});
// Gathers the stats of the entries beside `key`, if `key` is one of them.
void gather_metadata_near(cache::FileCache& cache, std::string_view key);
// If these threads run, they gather the stats of the directories that the program visits after that
// of `key`.
void follow_metadata(std::string_view key);
// Allows a miss to start the thread that talks to the cluster.
void allow_cluster();
// Ends all threads for good. If a thread hangs at the origin, waits for some time, or not at all.
void end_for_good(Hanging hanging = Hanging::is_waited_for);
// Called by the first thread of the process. Once that thread has ended (pthread_exit), libc ends
// the process with its last thread: our threads then end for good, so that the last one is the
// program's.
void end_with_this_thread();
// Called in the child of a fork, which has no such threads.
void become_child();

}  // namespace cube::shim::own_threads
