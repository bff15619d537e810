// Replaces the C++ library's demangler, which the handler of std::terminate would link in: 200
// relocations of libstdc++, 1,300 of libc++, and their pages, for which each program of a job pays
// at its start. This definition comes before the static library's, so that the handler prints the
// name of an exception as it is. Hidden, because the program has its own demangler. Thread safety:
// pure.
#include <cstddef>

extern "C" __attribute__((visibility("hidden"))) char* __cxa_demangle(const char*, char*,
                                                                      std::size_t*, int* status) {
  constexpr int k_invalid_name = -2;
  if (status != nullptr) *status = k_invalid_name;
  return nullptr;
}
