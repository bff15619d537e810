/* What the library offers to those who know that it is there; look it up at run time (dlsym), for it may not be. */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

/* Makes sure that this process can prefetch for the node: attaches to the cache and starts the thread that listens for
 * announcements (doc/FORMAT.md), if no other process of the node has one. 0, or an errno: ENOTSUP where the shim is switched
 * off, EAGAIN where there is no cache or no thread to be had. Thread safety: yes; not async-signal-safe. */
int cubeshim_start_sidecar(void);

#ifdef __cplusplus
}
#endif
