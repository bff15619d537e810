// For test_threads.py: more thread-local storage than the stack of one of the library's threads
// holds. Programs with many libraries (ffmpeg) have that much.
extern __thread volatile char company_large_tls[200000];
__thread volatile char company_large_tls[200000];
