// Streams (FILE*) over served files, which stdio.cc makes by fopencookie. Only for files in this
// folder. Thread safety: pure functions. The functions for wide streams lock the stream.
#pragma once

#include <cstdio>

namespace cube::shim {

// True for a stream over a served file, which libc reads through our functions.
bool is_served_stream(const FILE* stream);

// Returns the table for wide characters that the shim gave to a stream, or null. Free the table
// after the stream.
void* wide_part_of(const FILE* stream);
void free_wide_part(void* part);

}  // namespace cube::shim
