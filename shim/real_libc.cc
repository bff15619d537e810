#include "shim/real_libc.h"

#include <dlfcn.h>
#include <gnu/libc-version.h>

#include <cstring>
#include <initializer_list>

#include "shim/stand_ins.h"

namespace cube::shim::real {

#define CUBE_HOOK(result, name, parameters) constinit Function<result parameters> name{#name};
#define CUBE_RAW_HOOK(result, name, parameters) constinit Function<result parameters> name{#name, stand_in::name};
#define CUBE_RAW_NEW_FD(result, name, parameters, arguments) CUBE_RAW_HOOK(result, name, parameters)
#include "shim/hooks.def"

void* next_symbol(const char* name) { return dlsym(RTLD_NEXT, name); }

namespace {

// Compares with libc's own symbol first: dladdr goes through a whole symbol table.
bool is_anothers(const char* name, void* libcs) {
  ::Dl_info found{}, libc{};
  const void* const symbol = next_symbol(name);
  if (libcs != nullptr && symbol == dlsym(libcs, name)) return false;
  if (symbol == nullptr || dladdr(symbol, &found) == 0 || found.dli_fname == nullptr) return false;
  if (dladdr(reinterpret_cast<const void*>(&gnu_get_libc_version), &libc) == 0 || found.dli_fbase == libc.dli_fbase) return false;
  const char* const slash = std::strrchr(found.dli_fname, '/');
  return std::strstr(slash != nullptr ? slash : found.dli_fname, "san") == nullptr;
}

}  // namespace

void resolve_all() {
#define CUBE_HOOK(result, name, parameters) name.resolve();
#include "shim/hooks.def"
  void* const libcs = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
  for (const char* const name : {"stat", "stat64", "lstat", "lstat64", "fstat", "fstat64", "fstatat", "fstatat64", "statx",
                                 "__xstat", "__lxstat", "__fxstat", "__fxstatat"}) {
    if (is_anothers(name, libcs)) g_stat_is_anothers.store(true, std::memory_order_relaxed);
  }
  if (libcs != nullptr) dlclose(libcs);
}

}  // namespace cube::shim::real
