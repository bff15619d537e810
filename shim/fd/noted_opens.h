// The paths that one thread of the process opens, for a program that wants to know which files
// belong to which item (cubeshim.h). Invariants: The library owns the buffer of the paths and never
// frees it, so the library never writes to memory of the program. One thread at a time owns the
// buffer; in a forked child, no thread owns it. Thread safety: any thread may call claim(). note()
// is async-signal-safe, but a handler can spoil the text of one path.
#pragma once

#include <cstddef>
#include <string_view>

namespace cube::shim::noted_opens {

extern constinit thread_local bool t_is_noted [[gnu::tls_model("initial-exec")]];

// Gives the buffer to the calling thread. Returns null if another thread of this process owns the
// buffer.
void* claim(std::size_t* size);

[[gnu::noinline, gnu::cold]] void note_slow(std::string_view path);
// Adds one load to a hit.
inline void note(std::string_view path) {
  if (t_is_noted) [[unlikely]]
    note_slow(path);
}

}  // namespace cube::shim::noted_opens
