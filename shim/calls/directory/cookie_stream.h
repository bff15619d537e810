// Streams over served files (exports/stdio.cc), as the other files of stdio see them. Thread
// safety: pure functions, but for wide streams, which lock the stream.
#pragma once

#include <cstdio>

namespace cube::shim {

// A stream over a served file that libc does not read itself.
bool is_cookie_stream(const FILE* stream);

// The table that a stream was given for its wide characters, or nullptr. It is freed after the
// stream.
void* wide_part_of(const FILE* stream);
void free_wide_part(void* part);

}  // namespace cube::shim
