// The functions that this library exports: export_NAME in C++, NAME to the linker. The C++ name
// differs from libc's because libc's declarations have attributes and exception specifications that
// would conflict. Thread safety: as libc's.
#pragma once

#include "shim/process/libc_types.h"

#define CUBE_HOOK(result, name, parameters) \
  extern "C" __attribute__((visibility("default"))) result export_##name parameters asm(#name);
#include "shim/hooks.def"
