#include "shim/real_libc.h"

#include <dlfcn.h>

#include "shim/early_calls.h"

namespace cube::shim::real {

#define CUBE_HOOK(result, name, parameters) constinit Function<result parameters> name{#name};
#define CUBE_EARLY_HOOK(result, name, parameters) constinit Function<result parameters> name{#name, early::name};
#include "shim/hooks.def"

void* next_symbol(const char* name) { return dlsym(RTLD_NEXT, name); }

void resolve_all() {
#define CUBE_HOOK(result, name, parameters) name.resolve();
#include "shim/hooks.def"
}

}  // namespace cube::shim::real
