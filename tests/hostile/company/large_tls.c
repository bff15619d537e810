// For test_threads.py: thread-local storage that is larger than a stack of the library's threads, as
// that of a program with many libraries (ffmpeg).
extern __thread volatile char company_large_tls[200000];
__thread volatile char company_large_tls[200000];
