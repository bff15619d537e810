// The cache that this process is attached to. Thread safety: all of it. attached_cache is
// async-signal-safe.
#pragma once

#include "shim/process/process.h"

namespace cube::shim::attachment {

// cache() attaches at the first call; nullptr where that failed (said once), is under way in
// another thread, or is over.
extern constinit std::atomic<cache::FileCache*> g_cache;
inline cache::FileCache* attached_cache() { return g_cache.load(std::memory_order_acquire); }
cache::FileCache* attach_to_serve();
inline cache::FileCache* cache() {
  cache::FileCache* const cache = attached_cache();
  return cache != nullptr ? cache : attach_to_serve();
}
// The same, but makes no region where there is none. Also of a process that serves no files any
// more, but tells of its changes.
cache::FileCache* existing_cache();
// For who has changed a file of this device by whatever name, or is about to: attached, or by now
// to a region in which others have cached files of this device. To have cached nothing is no reason
// not to tell.
cache::FileCache* cache_of_device(std::uint64_t device);
// A child has ended that may have changed names without telling; 0: some child. The cache is told
// as soon as there is one.
void note_child_ended(std::uint32_t pid);
// It was tried, and there is none.
bool has_failed();
// For who only looks at a file: attached, or where there is a list to fetch from now on. A process
// that looks at many attaches to a region that others have made.
cache::FileCache* cache_to_look_at();
// Whether to ask for it: a look that is not worth it costs a load and the time of day.
bool may_have_cache_to_look_at();

// Attached, or by now to a region that others have made.
cache::FileCache* cache_to_report_by();
// At the end of the process, for good.
void leave();
// In the child of a fork: the parent's is taken out of the way.
void become_child();

}  // namespace cube::shim::attachment
