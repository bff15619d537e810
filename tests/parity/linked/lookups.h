// A library of the program that looks up functions of libc. It does so in its constructor, which
// runs before the constructor of a preloaded library, and again later. Thread safety: the data is
// constant after the constructor.
#pragma once

#include <sys/types.h>

#include <cstddef>

namespace cube::parity::linked {

using Read = ssize_t(int, void*, std::size_t);
extern Read *g_early_read, *g_early_next_read;

// Returns dlsym(RTLD_NEXT, name), called in this library.
void* next_of(const char* name);

}  // namespace cube::parity::linked
