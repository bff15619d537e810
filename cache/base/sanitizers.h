// Is this built for ThreadSanitizer? By gcc or by clang.
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
