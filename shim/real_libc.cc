#include "shim/real_libc.h"

#include <dlfcn.h>

#include "shim/early_calls.h"

namespace cube::shim::real {

#define CUBE_HOOK(result, name, parameters) constinit Function<result parameters> name{#name};
#define CUBE_EARLY_HOOK(result, name, parameters) constinit Function<result parameters> name{#name, early::name};
#define CUBE_FD_CALL(result, name, parameters, arguments) CUBE_HOOK(result, name, parameters)
#define CUBE_FD_CHANGE CUBE_FD_CALL
#define CUBE_NEW_FD CUBE_FD_CALL
#include "shim/hooks.def"
#undef CUBE_HOOK
#undef CUBE_EARLY_HOOK
#undef CUBE_FD_CALL
#undef CUBE_FD_CHANGE
#undef CUBE_NEW_FD

void* next_symbol(const char* name) { return dlsym(RTLD_NEXT, name); }

void resolve_all() {
#define CUBE_HOOK(result, name, parameters) name.resolve();
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
}

}  // namespace cube::shim::real
