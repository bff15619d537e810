// The slots of the loaded libraries: the words that hold the addresses of functions that a library
// takes from others. A slot is an entry of the library's address table, or a pointer in its data,
// such as one in SQLite's table of system calls. Only slots of functions that this library exports
// are examined. If such a slot leads directly to libc, its library was loaded with its own scope
// (RTLD_DEEPBIND), and look() writes the address of our function into the slot. The library's calls
// then reach this library, as they would without RTLD_DEEPBIND. Not thread-safe: one thread looks
// at a time. Not async-signal-safe, because look() takes the loader's lock.
#pragma once

#include <cstdint>
#include <vector>

namespace cube::shim::loaded_slots {

// A slot that does not lead to this library.
struct Found {
  std::uintptr_t function = 0;
  const char* name = nullptr;  // what the library calls; null if nothing was found
  char library[64] = {};
};
struct Result {
  std::vector<Found> others;   // slots that lead to other libraries
  Found refused;               // a slot that leads to libc and cannot be changed
  bool is_incomplete = false;  // a library is being loaded or unloaded: look again
};

struct Question {
  // The function that a program's call of read() reaches. If it is libc's, no library's calls are
  // bound to this library, and look() does nothing.
  std::uintptr_t first_read;
  // Whether Result::others may contain the function of this name.
  bool (*is_wanted)(const char* name);
  // An address in the library whose calls must lead to libc.
  std::uintptr_t exempt;
  // True if a library loaded since the last look may have its own scope. Then look() also examines
  // the library's pointers, and changes slots that the loader would bind at the first call.
  bool is_own_scope_possible;
};
Result look(const Question& question);

// True if a library has been loaded or unloaded since the last complete look.
bool have_changed();

}  // namespace cube::shim::loaded_slots
