/* What the library offers to those who know that it is there; look it up at run time (dlsym), for
 * it may not be. */
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Makes sure that this process can prefetch for the node: attaches to the cache and starts the
 * thread that listens for announcements (doc/FORMAT.md), if no other process of the node has one.
 * 0, or an errno: ENOTSUP where the shim is switched off, EAGAIN where there is no cache or no
 * thread to be had. Thread safety: yes; not async-signal-safe. */
int cubeshim_start_sidecar(void);

/* Notes from now on which files below the prefixes the calling thread opens for reading. The answer
 * is room of *size bytes, which is the library's and stays: a uint32_t, the number of bytes that
 * follow, and the paths, absolute, each with a '\0' behind it. The caller sets the number to 0 to
 * begin anew; a path for which there is no room is left out. A null pointer: the shim is switched
 * off, or another thread of this process is noted. A forked child asks again. Thread safety: yes.
 */
void* cubeshim_noted_opens(size_t* size);

#ifdef __cplusplus
}
#endif
