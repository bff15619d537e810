// For test_threads.py: more thread-local storage than the stack of one of the library's threads
// holds. A program with many libraries (ffmpeg) has much of it.
extern __thread volatile char company_large_tls[200000];
__thread volatile char company_large_tls[200000];
