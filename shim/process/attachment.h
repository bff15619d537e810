// The cache to which this process is attached. Thread-safe. attached_cache() is async-signal-safe.
#pragma once

#include "shim/process/process.h"

namespace cube::shim::attachment {

// cache() attaches at its first call. cache() returns null if attaching failed (which is logged
// once) or if a caller further up the stack is attaching. It also returns null if the process has
// left the cache or serves nothing.
extern constinit std::atomic<cache::FileCache*> g_cache;
inline cache::FileCache* attached_cache() { return g_cache.load(std::memory_order_acquire); }
cache::FileCache* attach_to_serve();
inline cache::FileCache* cache() {
  cache::FileCache* const cache = attached_cache();
  return cache != nullptr ? cache : attach_to_serve();
}
// Like cache(), but does not make a region. A process that no longer serves files but still reports
// its changes may also call this.
cache::FileCache* existing_cache();
// Returns the attached cache, for a call that changes a file of this device under any name. If the
// process is not attached, attaches to a region in which other processes have cached files of this
// device. A process must report its changes even if it has cached nothing.
cache::FileCache* cache_of_device(std::uint64_t device);
// Reports the end of a child that may have changed metadata silently. `pid` is 0 if it is unknown.
// If the process is not attached yet, it makes the report when it attaches.
void note_child_ended(std::uint32_t pid);
// Returns the cache for reading buckets: cache() or, if cache() is null and buckets are set, the
// spare cache. The spare cache holds listings and requests to the gateway, but no files. Returns
// null if neither exists.
cache::FileCache* cache_for_buckets();
// True if attaching was tried and failed.
bool has_failed();
// True in a forked child of an attached process. When the child attaches, it uses the region of its
// parent.
bool is_child_of_attached();
// Returns the attached cache, for a call that only asks for the metadata of a file. If the process
// is not attached, attaches to an existing region. Makes a region only if there is a list to fetch,
// or if metadata is cached and the process has queried many files.
cache::FileCache* cache_to_look_at();
// True if it is worthwhile to call cache_to_look_at(). A check that returns false costs a load and
// a reading of the clock.
bool may_have_cache_to_look_at();

// Returns the attached cache. If the process is not attached, attaches to an existing region.
cache::FileCache* cache_to_report_by();
// Detaches for good, at the end of the process.
void leave();
// Call this in the child of a fork. Abandons the parent's cache.
void become_child();

}  // namespace cube::shim::attachment
