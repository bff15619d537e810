// The threads of this process that work beside the program: they prefetch, and write to the disk. Thread safety: all of it.
#pragma once

#include "shim/process.h"

namespace cube::shim::background {

// start: whether they are wanted or not; false where there are none. stop: before the process changes what it is, or who; for
// good.
bool start();
void stop();
// Without any thread of ours, and then as before. Whether there were any.
bool pause();
void resume();
// If something is to be prefetched on this node, this process offers to lead.
void offer(cache::FileCache& cache);
// For good, and they have ended.
void end_for_good();
// In the child of a fork, which has none.
void become_child();

}  // namespace cube::shim::background
