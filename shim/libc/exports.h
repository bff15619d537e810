// Our own functions: export_NAME in C++, NAME to the linker. The C++ name differs so that libc's
// declarations, with their attributes and exception specifications, do not clash. Thread safety: as
// libc's.
#pragma once

#include "shim/process/libc_types.h"

#define CUBE_HOOK(result, name, parameters) \
  extern "C" __attribute__((visibility("default"))) result export_##name parameters asm(#name);
#include "shim/hooks.def"
