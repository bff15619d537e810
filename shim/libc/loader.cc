// dlopen and dlsym. A library or a binding of another language (ctypes, JNA) that looks up `read`
// in libc itself gets ours: a served file's fd is a placeholder, which libc's own would read.
// Called by jumps.S.
#include <dlfcn.h>

#include "shim/calls/loaded_calls.h"
#include "shim/calls/open/program_file.h"
#include "shim/libc/exports.h"
#include "shim/process/own_library.h"
#include "shim/process/process.h"
#include "shim/process/real_libc.h"

namespace shim = cube::shim;
namespace real = cube::shim::real;

namespace {

// Our function that replaces this one of libc. Null: none does.
void* function_in_front_of(const void* function) {
#define CUBE_HOOK(result, name, parameters) \
  if (real::name.found() == function) return reinterpret_cast<void*>(&export_##name);
#include "shim/hooks.def"
  return nullptr;
}

}  // namespace

extern "C" __attribute__((visibility("hidden"))) void* cube_shim_before_dlopen(const char** path,
                                                                               int flags) {
  shim::loaded_calls::before_dlopen(flags);
  *path = shim::name_for_loader(*path);
  return real::g_dlopen.find();
}

// Returned to jumps.S in two registers. If `target` is null, dlsym returns `answer`.
struct Lookup {
  void* target;
  void* answer;
};

extern "C" __attribute__((visibility("hidden"))) Lookup cube_shim_before_dlsym(void* library,
                                                                               const char* name,
                                                                               const void* caller) {
  void* const target = real::dlsym_target();
  // A library behind ours gets libc's function, because our own calls may end in that library.
  if (library == RTLD_NEXT || library == RTLD_DEFAULT || shim::is_in_library(caller) ||
      real::is_behind(caller) || !shim::process::is_active())
    return {target, nullptr};
  void* const found = reinterpret_cast<void* (*)(void*, const char*)>(target)(library, name);
  void* const ours = found != nullptr ? function_in_front_of(found) : nullptr;
  return {nullptr, ours != nullptr ? ours : found};
}
