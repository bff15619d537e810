// Our own functions: export_NAME in C++, NAME to the linker. The C++ name differs so that libc's declarations, with
// their attributes and exception specifications, do not clash. Thread safety: as libc's.
#pragma once

#include "shim/libc_types.h"

#define CUBE_HOOK(result, name, parameters) \
  extern "C" __attribute__((visibility("default"))) result export_##name parameters asm(#name);
#define CUBE_EARLY_HOOK CUBE_HOOK
#define CUBE_FD_CALL(result, name, parameters, arguments) CUBE_HOOK(result, name, parameters)
#define CUBE_FD_CHANGE CUBE_FD_CALL
#define CUBE_NEW_FD CUBE_FD_CALL
#include "shim/hooks.def"
#undef CUBE_HOOK
#undef CUBE_EARLY_HOOK
#undef CUBE_FD_CALL
#undef CUBE_FD_CHANGE
#undef CUBE_NEW_FD
