// For test_threads.py: more thread-local storage than fits on the stack of a thread of the library.
// Programs with many libraries (ffmpeg) have this much.
extern __thread volatile char company_large_tls[200000];
__thread volatile char company_large_tls[200000];
