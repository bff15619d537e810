#include "tests/parity/linked/lookups.h"

#include <dlfcn.h>

namespace cube::parity::linked {

Read *g_early_read = nullptr, *g_early_next_read = nullptr;

void* next_of(const char* name) { return dlsym(RTLD_NEXT, name); }

namespace {

__attribute__((constructor)) void load() {
  void* const libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
  g_early_read = reinterpret_cast<Read*>(dlsym(libc, "read"));
  g_early_next_read = reinterpret_cast<Read*>(next_of("read"));
}

}  // namespace

}  // namespace cube::parity::linked
