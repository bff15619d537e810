#include "shim/process/real_libc.h"

#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <link.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <initializer_list>

#include "cache/base/process/block_signals.h"
#include "cache/base/process/library_tables.h"
#include "shim/process/own_library.h"
#include "shim/process/stand_ins.h"

namespace cube::shim::real {

constinit const Names k_names = {
    "vfork",
    "__vfork",
    "dlopen",
    "dlsym",
#define CUBE_HOOK(result, name, parameters) #name,
#include "shim/hooks.def"
};

#define CUBE_HOOK(result, name, parameters) \
  constinit Function<result parameters> name{offsetof(Names, name)};
#define CUBE_RAW_HOOK(result, name, parameters) \
  constinit Function<result parameters> name{offsetof(Names, name), stand_in::name};
#define CUBE_RAW_NEW_FD(result, name, parameters, arguments) CUBE_RAW_HOOK(result, name, parameters)
#include "shim/hooks.def"

namespace {

// Before glibc 2.36, RTLD_NEXT finds the oldest of several versions of a function (glibc bug
// 14932). The oldest realpath accepts no null, and the oldest posix_spawn uses a shell to run a
// file that it cannot execute.
bool finds_the_oldest() {
  static const bool result = !is_libc_from("2.36");
  return result;
}

// The handle is never closed, because libc stays loaded anyway.
void* libc_handle() {
  static void* const libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
  return libc;
}

// Asks libc first, because dladdr (in symbol_of_caller) searches a whole symbol table.
void* newest_version(const char* name, void* symbol) {
  if (libc_handle() != nullptr && dlsym(libc_handle(), name) == symbol) return symbol;
  void* const newest = symbol_of_caller(name, symbol);
  return newest != nullptr ? newest : symbol;
}

}  // namespace

bool is_hooked(const char* name) {
  const char* wanted = name;  // null: the row is an alias
  for (std::size_t i = 0; i < sizeof k_names; ++i) {
    const char c = reinterpret_cast<const char*>(&k_names)[i];
    if (wanted != nullptr && c != *wanted) wanted = nullptr;
    if (c != '\0') {
      if (wanted != nullptr) ++wanted;
    } else if (wanted != nullptr) {
      return true;
    } else {
      wanted = name;
    }
  }
  return false;
}

void* symbol_of_caller(const char* name, const void* caller) {
  // A signal handler that jumps out of this function would leave the loader's lock held.
  const base::BlockSignals block;
  ::Dl_info found{};
  if (dladdr(caller, &found) == 0) return nullptr;
  void* const library = dlopen(found.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  void* const symbol = dlsym(library, name);
  dlclose(library);
  return symbol;
}

constinit JumpTarget g_vfork{offsetof(Names, vfork)}, g_dlopen{offsetof(Names, dlopen)};

void* JumpTarget::find() {
  void* known = known_.load(std::memory_order_relaxed);
  if (known == nullptr)
    known_.store(known = dlsym(RTLD_NEXT, name_at(name_)), std::memory_order_relaxed);
  return known;
}

void* dlsym_target() {
  static constinit std::atomic<void*> g_known{nullptr};
  void* known = g_known.load(std::memory_order_relaxed);
  // A call of dlsym would reach our dlsym, so this function calls dlvsym. Newer libcs still have
  // the first version of the symbol.
  if (known == nullptr) {
    // libc's dlsym can also find the dlsym of a library after ours.
    auto* const libcs = reinterpret_cast<void* (*)(void*, const char*)>(
        dlvsym(RTLD_NEXT, "dlsym", k_first_libc_version));
    void* const next = libcs != nullptr ? libcs(RTLD_NEXT, "dlsym") : nullptr;
    known = next != nullptr ? next : reinterpret_cast<void*>(libcs);
    g_known.store(known, std::memory_order_relaxed);
  }
  return known;
}

void* next_symbol(const char* name) {
  void* const symbol = dlsym(RTLD_NEXT, name);
  return symbol != nullptr && finds_the_oldest() ? newest_version(name, symbol) : symbol;
}

namespace {

// True if the function after ours belongs to a library that is neither libc nor a sanitizer. Like
// newest_version(), first compares the function with libc's symbol.
bool is_anothers(const char* name) {
  ::Dl_info found{}, libc{};
  const void* const symbol = next_symbol(name);
  if (libc_handle() != nullptr && symbol == dlsym(libc_handle(), name)) return false;
  if (symbol == nullptr || dladdr(symbol, &found) == 0 || found.dli_fname == nullptr) return false;
  if (dladdr(reinterpret_cast<const void*>(&gnu_get_libc_version), &libc) == 0 ||
      found.dli_fbase == libc.dli_fbase)
    return false;
  const char* const slash = std::strrchr(found.dli_fname, '/');
  return std::strstr(slash != nullptr ? slash : found.dli_fname, "san") == nullptr;
}

// The memory of a library, and its place in the lookup order.
struct LoadedLibrary : base::AddressRange {
  int place = -1;
};

LoadedLibrary library_of(const void* address) {
  struct Search {
    std::uintptr_t address;
    LoadedLibrary found;
    int place;
  } wanted{reinterpret_cast<std::uintptr_t>(address), {}, 0};
  dl_iterate_phdr(
      [](struct ::dl_phdr_info* info, size_t, void* data) {
        auto* const search = static_cast<Search*>(data);
        const LoadedLibrary library{base::range_of(*info), search->place++};
        if (!library.has(search->address)) return 0;
        search->found = library;
        return 1;
      },
      &wanted);
  return wanted.found;
}

// The libraries other than libc that provide functions after ours in the lookup order. The table is
// written before main. If threads of other constructors also look up functions, they write the same
// values.
constinit LoadedLibrary g_behind[8] = {};

void note_behind(const void* function, const LoadedLibrary& libc) {
  const auto address = reinterpret_cast<std::uintptr_t>(function);
  if (function == nullptr || libc.has(address)) return;
  for (auto& library : g_behind) {
    if (library.has(address)) return;
    if (library.end != 0) continue;
    library = library_of(function);
    return;
  }
}

}  // namespace

bool is_behind(const void* address) {
  return std::any_of(std::begin(g_behind), std::end(g_behind), [&](const auto& library) {
    return library.has(reinterpret_cast<std::uintptr_t>(address));
  });
}

bool is_libc_from(const char* version) { return strverscmp(gnu_get_libc_version(), version) >= 0; }

bool comes_after_us(const void* address) {
  return library_of(address).place > library_of(__ehdr_start).place;
}

bool is_next_of_caller(const char* name, const void* caller) {
  return library_of(dlsym(RTLD_NEXT, name)).has(reinterpret_cast<std::uintptr_t>(caller));
}

void resolve_all() {
  static constinit std::atomic<bool> g_is_done{false};
  // Acquire. Pairs with the release below.
  if (g_is_done.load(std::memory_order_acquire)) return;
  g_vfork.find();
  g_dlopen.find();
#define CUBE_HOOK(result, name, parameters) name.resolve();
#include "shim/hooks.def"
  const LoadedLibrary libc = library_of(reinterpret_cast<const void*>(&gnu_get_libc_version));
#define CUBE_HOOK(result, name, parameters) note_behind(name.found(), libc);
#include "shim/hooks.def"
  g_is_done.store(true, std::memory_order_release);
}

void find_stat_of_others() {
  for (const char* const name :
       {"stat", "stat64", "lstat", "lstat64", "fstat", "fstat64", "fstatat", "fstatat64", "statx",
        "__xstat", "__lxstat", "__fxstat", "__fxstatat"}) {
    if (is_anothers(name)) g_stat_is_anothers.store(true, std::memory_order_relaxed);
  }
}

}  // namespace cube::shim::real
