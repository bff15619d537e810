// Tells whether this library is built for ThreadSanitizer (by gcc or by clang), and which
// sanitizers the host program has.
#pragma once

#if defined(__SANITIZE_THREAD__)
#define CUBE_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define CUBE_TSAN 1
#endif
#endif
#ifndef CUBE_TSAN
#define CUBE_TSAN 0
#endif

// The address of each function is not null if the host program is built with the function's
// sanitizer.
extern "C" __attribute__((weak)) void __tsan_init();  // NOLINT(bugprone-reserved-identifier)
extern "C" __attribute__((weak)) void
__lsan_do_leak_check();  // NOLINT(bugprone-reserved-identifier)
