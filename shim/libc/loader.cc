// dlopen and dlsym, called by jumps.S. A library or a language binding (ctypes, JNA) may look up
// `read` directly in libc. The lookup returns our `read`, because libc's `read` would fail on the
// placeholder of a served file.
#include <dlfcn.h>

#include "shim/calls/loaded_calls.h"
#include "shim/calls/open/program_file.h"
#include "shim/libc/exports.h"
#include "shim/path/fd_path.h"
#include "shim/process/own_library.h"
#include "shim/process/process.h"
#include "shim/process/real_libc.h"

namespace shim = cube::shim;
namespace real = cube::shim::real;
namespace process = cube::shim::process;

extern "C" {
// The functions of jumps.S.
[[gnu::visibility("hidden")]] void cube_shim_vfork();
[[gnu::visibility("hidden")]] void cube_shim_dlopen();
[[gnu::visibility("hidden")]] void cube_shim_dlsym();
}

namespace {

// Returns our function that replaces this function of libc, or null if there is none.
void* function_in_front_of(const void* function) {
  if (function == nullptr) return nullptr;
  if (function == real::g_vfork.find()) return reinterpret_cast<void*>(&cube_shim_vfork);
  if (function == real::g_dlopen.find()) return reinterpret_cast<void*>(&cube_shim_dlopen);
  if (function == real::dlsym_target()) return reinterpret_cast<void*>(&cube_shim_dlsym);
#define CUBE_HOOK(result, name, parameters) \
  if (real::name.found() == function) return reinterpret_cast<void*>(&export_##name);
#include "shim/hooks.def"
  return nullptr;
}

// UCX and Open MPI look up mmap and similar functions in the libraries after them. They overwrite
// the code of these functions with a jump to their own hook, which calls syscall(). If they
// overwrote our function, the hook's syscall() would lead back to the hook.
bool may_be_overwritten(const void* function) {
  return function == real::mmap.found() || function == real::munmap.found() ||
         function == real::mremap.found() || function == real::madvise.found();
}

// For RTLD_NEXT: returns our function if it replaces the next definition after the caller's
// library. Returns null if libc must answer.
//
// libc finds the next definition only for the library that calls dlsym. So this code looks up the
// function in the caller's library and the libraries that it needs. If the result is the definition
// after ours, it is also the next definition for the caller's library, which comes after this
// library.
void* ours_instead_of_next(const char* name, const void* caller) {
  const void* const next = real::symbol_of_caller(name, caller);
  return next == nullptr || may_be_overwritten(next) ? nullptr : function_in_front_of(next);
}

// True if dlsym may return our function. A library after ours that also defines some of our
// functions gets libc's functions, because our own calls may lead to that library.
bool may_be_ours(void* library, const char* name, const void* caller) {
  if (library == RTLD_DEFAULT || shim::is_in_library(caller)) return false;
  const bool is_loaded = process::is_loaded();
  if (is_loaded && !process::is_active()) return false;
  // The functions of a library before ours already call ours.
  if (library == RTLD_NEXT && (!real::is_hooked(name) || !real::comes_after_us(caller)))
    return false;
  if (!is_loaded) {
    // An allocator or a sanitizer looks up functions during its start, when it could not serve our
    // allocations. At that time, it looks up only functions that it defines, or that this library
    // does not have.
    if (!real::is_hooked(name) || real::is_next_of_caller(name, caller)) return false;
    real::resolve_all();
  }
  return !real::is_behind(caller);
}

}  // namespace

extern "C" __attribute__((visibility("hidden"))) void* cube_shim_before_dlopen(const char** path,
                                                                               int flags) {
  shim::loaded_calls::before_dlopen(flags);
  if (process::is_active()) shim::materialize_named(*path);
  *path = shim::name_for_loader(*path);
  return real::g_dlopen.find();
}

// The result for jumps.S, in two registers. If `target` is null, dlsym returns `answer`.
struct Lookup {
  void* target;
  void* answer;
};

extern "C" __attribute__((visibility("hidden"))) Lookup cube_shim_before_dlsym(void* library,
                                                                               const char* name,
                                                                               const void* caller) {
  void* const target = real::dlsym_target();
  shim::loaded_calls::look_if_changed();
  if (!may_be_ours(library, name, caller)) return {target, nullptr};
  if (library == RTLD_NEXT) {
    void* const ours = ours_instead_of_next(name, caller);
    return {ours != nullptr ? nullptr : target, ours};
  }
  void* const found = reinterpret_cast<void* (*)(void*, const char*)>(target)(library, name);
  void* const ours = function_in_front_of(found);
  return {nullptr, ours != nullptr ? ours : found};
}
