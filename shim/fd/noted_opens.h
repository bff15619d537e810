// The paths that one thread of the process opens, for a program that wants to know which files
// belong to which item (cubeshim.h). Invariants: the library owns the room and never frees it. So
// it writes to no memory of the program, even if the thread ends at any point. One thread of a
// process has the room at a time; in a forked child it is free. Thread safety: any thread may call
// claim; note is async-signal-safe; at worst, a handler spoils the text of one path.
#pragma once

#include <cstddef>
#include <string_view>

namespace cube::shim::noted_opens {

extern constinit thread_local bool t_is_noted [[gnu::tls_model("initial-exec")]];

// Gives the room to the calling thread. Returns null while another thread of this process has it.
void* claim(std::size_t* size);

[[gnu::noinline, gnu::cold]] void note_slow(std::string_view path);
// A hit pays one load.
inline void note(std::string_view path) {
  if (t_is_noted) [[unlikely]]
    note_slow(path);
}

}  // namespace cube::shim::noted_opens
