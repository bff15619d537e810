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

namespace {

// Before 2.36 RTLD_NEXT finds the oldest of several versions (glibc's bug 14932): a realpath that takes no null, a posix_spawn
// that gives what it cannot execute to a shell.
bool finds_the_oldest() {
  static const bool result = !is_libc_from("2.36");
  return result;
}

// Kept open: libc stays anyhow.
void* libc_handle() {
  static void* const libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
  return libc;
}

// Asks libc first: dladdr goes through a whole symbol table.
void* newest_version(const char* name, void* symbol) {
  if (libc_handle() != nullptr && dlsym(libc_handle(), name) == symbol) return symbol;
  ::Dl_info found{};
  if (dladdr(symbol, &found) == 0) return symbol;
  void* const library = dlopen(found.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return symbol;
  void* const newest = dlsym(library, name);
  dlclose(library);
  return newest != nullptr ? newest : symbol;
}

}  // namespace

void* next_symbol(const char* name) {
  void* const symbol = dlsym(RTLD_NEXT, name);
  return symbol != nullptr && finds_the_oldest() ? newest_version(name, symbol) : symbol;
}

namespace {

// Compares with libc's own symbol first, as above.
bool is_anothers(const char* name) {
  ::Dl_info found{}, libc{};
  const void* const symbol = next_symbol(name);
  if (libc_handle() != nullptr && symbol == dlsym(libc_handle(), name)) return false;
  if (symbol == nullptr || dladdr(symbol, &found) == 0 || found.dli_fname == nullptr) return false;
  if (dladdr(reinterpret_cast<const void*>(&gnu_get_libc_version), &libc) == 0 || found.dli_fbase == libc.dli_fbase) return false;
  const char* const slash = std::strrchr(found.dli_fname, '/');
  return std::strstr(slash != nullptr ? slash : found.dli_fname, "san") == nullptr;
}

}  // namespace

bool is_libc_from(const char* version) { return strverscmp(gnu_get_libc_version(), version) >= 0; }

void resolve_all() {
#define CUBE_HOOK(result, name, parameters) name.resolve();
#include "shim/hooks.def"
  for (const char* const name : {"stat", "stat64", "lstat", "lstat64", "fstat", "fstat64", "fstatat", "fstatat64", "statx",
                                 "__xstat", "__lxstat", "__fxstat", "__fxstatat"}) {
    if (is_anothers(name)) g_stat_is_anothers.store(true, std::memory_order_relaxed);
  }
}

}  // namespace cube::shim::real
