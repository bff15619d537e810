// Streams (FILE*) over served files, made in stdio.cc by fopencookie. Only for the files of this
// folder. Thread safety: pure functions, except for wide streams, which lock the stream.
#pragma once

#include <cstdio>

namespace cube::shim {

// True for a stream over a served file, which libc does not read itself.
bool is_served_stream(const FILE* stream);

// Returns the table that a stream was given for its wide characters, or nullptr. It is freed after
// the stream.
void* wide_part_of(const FILE* stream);
void free_wide_part(void* part);

}  // namespace cube::shim
