// The cache that this process is attached to. Thread-safe. attached_cache is async-signal-safe.
#pragma once

#include "shim/process/process.h"

namespace cube::shim::attachment {

// cache() attaches at the first call. It returns null if that failed (logged once), if this thread
// is already attaching further up its stack, or if the process has left or serves nothing.
extern constinit std::atomic<cache::FileCache*> g_cache;
inline cache::FileCache* attached_cache() { return g_cache.load(std::memory_order_acquire); }
cache::FileCache* attach_to_serve();
inline cache::FileCache* cache() {
  cache::FileCache* const cache = attached_cache();
  return cache != nullptr ? cache : attach_to_serve();
}
// Like cache(), but makes no region if there is none. A process that no longer serves files, but
// still reports its changes, may also call this.
cache::FileCache* existing_cache();
// Returns the attached cache, for a call that has changed or will change a file of this device
// under any name. If there is none, attaches to a region in which others have cached files of this
// device, because even a process that has cached nothing must report its changes.
cache::FileCache* cache_of_device(std::uint64_t device);
// Reports that a child has ended that may have changed metadata silently; `pid` is 0 if it is
// unknown. If there is no cache yet, the first one gets the report.
void note_child_ended(std::uint32_t pid);
// The cache through which buckets are read: cache() or, if the process has none and buckets are
// set, the spare cache. A spare cache holds requests to the gateway and listings, but no files.
// Returns null if there is neither.
cache::FileCache* cache_for_buckets();
// True if attaching was tried and failed.
bool has_failed();
// True in a forked child of an attached process. Once the child attaches, it uses the same region.
bool is_child_of_attached();
// Returns the attached cache, for a call that only asks for the metadata of a file. If there is
// none, attaches to a region that others have made. It makes a region only if there is a list to
// fetch, or if metadata is cached and the process has queried many files.
cache::FileCache* cache_to_look_at();
// True if cache_to_look_at() is worth a call. Otherwise, this check costs a load and a reading of
// the clock.
bool may_have_cache_to_look_at();

// Returns the attached cache. If there is none, attaches to an existing region.
cache::FileCache* cache_to_report_by();
// Detaches for good, at the end of the process.
void leave();
// In the child of a fork: abandons the parent's cache.
void become_child();

}  // namespace cube::shim::attachment
