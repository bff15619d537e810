// The threads of this process that work beside the program: they prefetch and write to the disk.
// Thread safety: all of it.
#pragma once

#include <string_view>

#include "shim/process/process.h"

namespace cube::shim::background {

// start() starts the threads whether they are wanted or not, and returns false if there are none.
// stop() ends them for good, before the process changes its program or its identity.
bool start();
void stop();
// pause() ends all threads until resume(), and returns whether there were any. It waits for a
// thread that hangs at the origin for a while, or to its end: that thread keeps the rights that it
// began with.
enum class Hanging : bool { is_left, is_waited_for };
bool pause(Hanging hanging = Hanging::is_left);
void resume();
// none -> busy -> running; over is final.
enum class State : int { none, busy, running, over };
extern constinit std::atomic<State> g_state;
// Offers to lead if something is to be prefetched on this node.
void offer_slow(cache::FileCache& cache);
inline void offer(cache::FileCache& cache) {
  if (g_state.load(std::memory_order_relaxed) == State::none) offer_slow(cache);
}
// Like offer, but for the threads that read large files ahead, when such a file was opened.
void offer_to_read_ahead(cache::FileCache& cache);
// Work for the threads that gather metadata. list_ahead lists the directory. gather_metadata_near
// gathers the stats of the entries beside `key`, if `key` is one of them.
void list_ahead(cache::FileCache& cache, std::string_view directory);
// For a program that goes from one directory to the next and has waited for this one.
void list_next(cache::FileCache& cache, std::string_view directory);
void gather_metadata_near(cache::FileCache& cache, std::string_view key);
// Like gather_metadata_near, but for a file that a program opens. It need not open the others of a
// large directory.
void gather_metadata_around(cache::FileCache& cache, std::string_view key);
// If these threads run, they gather the stats of the directories that the program visits after that
// of `key`.
void follow_metadata(std::string_view key);
// Returns false if there are no such threads, or if they have too much to do.
bool read_ahead(cache::LargeFile& file, int fd, cache::LargeFile::FdEpoch fd_epoch,
                const cache::LargeFile::Range& range);
bool may_keep_mapped();
// Returns false if no thread has taken it.
bool keep_mapped(cache::LargeFile& file, base::Mapping&& own, std::uint64_t begin,
                 const void* program_has, std::uint64_t before);
void let_go_of(cache::LargeFile& file);
void opened(const cache::LargeFile& file);
void unmapped(const void* at, std::size_t length);
// Allows a miss to start the thread that talks to the cluster.
void allow_cluster();
// Ends all threads for good, and waits for their end.
void end_for_good();
// Called by the first thread of the process. Once that thread has ended (pthread_exit), libc ends
// the process with its last thread: our threads then end for good, so that the last one is the
// program's.
void end_with_this_thread();
// Called in the child of a fork, which has no such threads.
void become_child();

}  // namespace cube::shim::background
