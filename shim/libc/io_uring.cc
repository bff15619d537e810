// io_uring through the shared library liburing. liburing makes system calls without libc. So this
// library sees when a ring is made, but none of its requests.
#include <cerrno>

#include "shim/calls/new_fds.h"
#include "shim/calls/past_libc.h"
#include "shim/fd/materialize.h"
#include "shim/libc/exports.h"
#include "shim/process/c_result.h"
#include "shim/process/real_libc.h"

namespace shim = cube::shim;
namespace real = cube::shim::real;

// Calls liburing's function. If liburing was loaded with RTLD_LOCAL, finds the function that the
// caller's library uses. Returns -errno on failure.
#define CUBE_RING(name, declaration, ...)                                                         \
  int export_##name declaration {                                                                 \
    using Function = int declaration;                                                             \
    const void* const caller = __builtin_return_address(0);                                       \
    const auto call = [&]() -> int {                                                              \
      if (real::name.is_there()) return real::name(__VA_ARGS__);                                  \
      auto* const function = reinterpret_cast<Function*>(real::symbol_of_caller(#name, caller));  \
      return function != nullptr && function != &export_##name ? function(__VA_ARGS__) : -ENOSYS; \
    };                                                                                            \
    shim::expect_new_fd();                                                                        \
    /* Requests to the ring may end after the program's close. */                                 \
    shim::let_writers_outlive_us();                                                               \
    return shim::past_libc::with_reader("liburing", call);                                        \
  }
CUBE_RING(io_uring_setup, (unsigned entries, void* parameters), entries, parameters)
CUBE_RING(io_uring_queue_init, (unsigned entries, void* ring, unsigned flags), entries, ring, flags)
CUBE_RING(io_uring_queue_init_params, (unsigned entries, void* ring, void* parameters), entries,
          ring, parameters)
CUBE_RING(io_uring_queue_init_mem,
          (unsigned entries, void* ring, void* parameters, void* memory, size_t n), entries, ring,
          parameters, memory, n)
CUBE_RING(io_uring_queue_init_try_nosqarr, (unsigned entries, void* ring, void* parameters),
          entries, ring, parameters)
