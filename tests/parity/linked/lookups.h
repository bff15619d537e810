// A library of the program that looks up functions of libc, in its constructor, which runs before
// that of a preloaded library, and later. Thread safety: constants after the constructor.
#pragma once

#include <sys/types.h>

#include <cstddef>

namespace cube::parity::linked {

using Read = ssize_t(int, void*, std::size_t);
extern Read *g_early_read, *g_early_next_read;

// dlsym(RTLD_NEXT, name) in that library.
void* next_of(const char* name);

}  // namespace cube::parity::linked
