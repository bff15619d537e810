// The functions that come after ours in the lookup order, usually libc's: real::NAME(...) for each
// row of hooks.def. The constructor resolves all of them. Before that, a function with a stand-in
// (stand_ins.h) is a raw system call, because allocators and other constructors call such functions
// when dlsym cannot be called yet. Any other function is resolved by its first call. Thread safety:
// all threads write the same value to a pointer.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "shim/process/libc_types.h"

namespace cube::shim::real {

// The names of the functions, as one block of text. An array of pointers would need relocations.
struct Names {
  char vfork[sizeof "vfork"], __vfork[sizeof "__vfork"];
  char dlopen[sizeof "dlopen"], dlsym[sizeof "dlsym"];
#define CUBE_HOOK(result, name, parameters) char name[sizeof #name];
#include "shim/hooks.def"
};
extern const Names k_names;
// The offset of a name in k_names.
using NameOffset = std::uint16_t;
static_assert(sizeof(Names) <= std::numeric_limits<NameOffset>::max());
inline const char* name_at(NameOffset offset) {
  return reinterpret_cast<const char*>(&k_names) + offset;
}

// True if this library has a function of that name. Calls no function of libc, because a sanitizer
// that has not fully started may have replaced it.
bool is_hooked(const char* name);

// The version of libc's oldest functions.
#if defined(__x86_64__)
inline constexpr const char* k_first_libc_version = "GLIBC_2.2.5";
#elif defined(__aarch64__)
inline constexpr const char* k_first_libc_version = "GLIBC_2.17";
#endif

void* next_symbol(const char* name);
// Searches for a function in the libraries that the caller's code sees, including those loaded with
// RTLD_LOCAL. Returns null if no library has the function.
void* symbol_of_caller(const char* name, const void* caller);

// The address of libc's function for a hook that is a jump (jumps.S). find() does not use
// next_symbol(), which calls dlopen. find() needs no version, because libc has only one version of
// each such function.
class JumpTarget {
 public:
  constexpr explicit JumpTarget(NameOffset name) : name_(name) {}
  void* find();

 private:
  std::atomic<void*> known_{nullptr};
  NameOffset name_;
};
extern constinit JumpTarget g_vfork, g_dlopen;
// The address of libc's dlsym.
void* dlsym_target();

template <typename Signature>
class Function {
 public:
  constexpr explicit Function(NameOffset name, Signature* stand_in = nullptr)
      : function_(stand_in), name_(name) {}

  template <typename... Arguments>
  auto operator()(Arguments... arguments) {
    using Return = decltype(std::declval<Signature*>()(arguments...));
    Signature* function = function_.load(std::memory_order_relaxed);
    if (function == nullptr) [[unlikely]] {
      resolve();
      function = function_.load(std::memory_order_relaxed);
      if (function == nullptr) return missing<Return>();
    }
    return function(arguments...);
  }
  // Keeps the old address if no library has the function. io_submit belongs to libaio, and glibc
  // before 2.34 lacks close_range.
  void resolve() {
    if (void* const symbol = next_symbol(name_at(name_)); symbol != nullptr) {
      function_.store(reinterpret_cast<Signature*>(symbol), std::memory_order_relaxed);
      is_found_.store(true, std::memory_order_relaxed);
    }
  }
  // Returns null if no function comes after ours.
  const void* found() const {
    return is_found_.load(std::memory_order_relaxed)
               ? reinterpret_cast<const void*>(function_.load(std::memory_order_relaxed))
               : nullptr;
  }
  bool is_there() const { return function_.load(std::memory_order_relaxed) != nullptr; }

 private:
  template <typename Return>
  static Return missing() {
    errno = ENOSYS;
    if constexpr (std::is_pointer_v<Return>) {
      return nullptr;
    } else if constexpr (!std::is_void_v<Return>) {
      return static_cast<Return>(-1);
    }
  }
  std::atomic<Signature*> function_;
  NameOffset name_;
  std::atomic<bool> is_found_{false};
};

#define CUBE_HOOK(result, name, parameters) extern Function<result parameters> name;
#include "shim/hooks.def"

// Finds all functions, and the libraries after ours. The constructor calls this. If a library whose
// constructor runs before ours looks up a function, that lookup calls resolve_all() first.
void resolve_all();

// True if this code belongs to a library that comes after ours in the lookup order.
bool comes_after_us(const void* address);
// True if the next function of that name after ours belongs to the library that contains this code.
// Calls no function that a library that has not fully started may have replaced.
bool is_next_of_caller(const char* name, const void* caller);

// True if this code belongs to a library other than libc that provides one of the functions after
// ours. A function of such a library may be a wrapper of syscall(). If that syscall() reached our
// function, the recursion would never end. Async-signal-safe.
bool is_behind(const void* address);

// True if libc is of this version (such as "2.36") or newer.
bool is_libc_from(const char* version);

// True if another preloaded library after ours changes the results of stat, as libfakeroot changes
// the owner. If so, stat of that library must be called. The interceptors of sanitizers do not
// count, because they only observe.
inline constinit std::atomic<bool> g_stat_is_anothers{false};
void find_stat_of_others();
inline bool stat_is_anothers() { return g_stat_is_anothers.load(std::memory_order_relaxed); }

}  // namespace cube::shim::real
