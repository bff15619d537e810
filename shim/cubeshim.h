/* The functions that the library offers to programs that know of it. Look them up at run time
 * (dlsym), because the library may not be loaded. */
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Makes sure that this process can prefetch for the node: attaches to the cache and starts the
 * thread that listens for announcements (doc/FORMAT.md), if no other process of the node has one.
 * Returns 0 or an errno: ENOTSUP if the shim is switched off, EAGAIN if there is no cache or no
 * thread. Thread-safe; not async-signal-safe. */
int cubeshim_start_sidecar(void);

/* Notes from now on which files below the prefixes the calling thread opens for reading. The answer
 * is a buffer of *size bytes, which belongs to the library and stays valid. It holds a uint32_t,
 * the count of bytes that follow, and then absolute paths, each terminated by a '\0'. The caller
 * sets the count to 0 to start over; a path that does not fit is left out. Returns null if the shim
 * is switched off, or if another thread of this process is being noted. A forked child calls it
 * again. Thread-safe. */
void* cubeshim_noted_opens(size_t* size);

#ifdef __cplusplus
}
#endif
