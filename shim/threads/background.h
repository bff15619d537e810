// The threads of this process that work beside the program: they prefetch, and write to the disk.
// Thread safety: all of it.
#pragma once

#include <string_view>

#include "shim/process/process.h"

namespace cube::shim::background {

// start: whether they are wanted or not; false where there are none. stop: before the process
// changes what it is, or who; for good.
bool start();
void stop();
// Without any thread of ours, and then as before. Whether there were any. One that hangs at the
// origin is waited for a while, or to its end: it keeps the rights that it began with.
enum class Hanging : bool { is_left, is_waited_for };
bool pause(Hanging hanging = Hanging::is_left);
void resume();
// none -> busy -> running, or over, for good.
enum class State : int { none, busy, running, over };
extern constinit std::atomic<State> g_state;
// If something is to be prefetched on this node, this process offers to lead.
void offer_slow(cache::FileCache& cache);
inline void offer(cache::FileCache& cache) {
  if (g_state.load(std::memory_order_relaxed) == State::none) offer_slow(cache);
}
// The same for the threads that read large files ahead: such a file has been opened.
void offer_to_read_ahead(cache::FileCache& cache);
// By the threads that gather names: the directory is listed; the stats of the names beside this one
// are gathered, if it is one of them.
void list_ahead(cache::FileCache& cache, std::string_view directory);
// The program goes from one directory to the next, and has waited for this one.
void list_next(cache::FileCache& cache, std::string_view directory);
void gather_metadata_near(cache::FileCache& cache, std::string_view key);
// The same of a file that a program opens. It need not open the others of a large directory.
void gather_metadata_around(cache::FileCache& cache, std::string_view key);
// The same threads, if they run, gather the stats of the directories that the program comes to
// after that of this name.
void follow_metadata(std::string_view key);
// False: there are none, or they have too much to do.
bool read_ahead(cache::LargeFile& file, int fd, cache::LargeFile::FdEpoch fd_epoch,
                const cache::LargeFile::Range& range);
bool may_keep_mapped();
// False: nobody has taken it.
bool keep_mapped(cache::LargeFile& file, base::Mapping&& own, std::uint64_t begin,
                 const void* program_has, std::uint64_t before);
void let_go_of(cache::LargeFile& file);
void opened(const cache::LargeFile& file);
void unmapped(const void* at, std::size_t length);
// From here on the thread that talks to the cluster may be started, by a miss.
void allow_cluster();
// For good, and they have ended.
void end_for_good();
// The calling thread is the process's first. Once it has ended (pthread_exit), libc ends the
// process with its last thread: the threads here then end for good, so that one of the program's is
// the last.
void end_with_this_thread();
// In the child of a fork, which has none.
void become_child();

}  // namespace cube::shim::background
