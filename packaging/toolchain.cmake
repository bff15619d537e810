# Cross compilation with zig's clang. Its target names an architecture and the oldest glibc with
# which the result runs. dist.py writes the wrappers and the tree of dependencies that this file
# refers to.
#   CUBESHIM_DIST_TOOLS    folder with the wrappers cc, c++, ar, ranlib and run of one target
#   CUBESHIM_DIST_SYSROOT  folder with usr/include and usr/lib of the dependencies, without the
#                          machine's own libc
#   CUBESHIM_DIST_CPU      x86_64 or aarch64
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES CUBESHIM_DIST_TOOLS CUBESHIM_DIST_SYSROOT
  CUBESHIM_DIST_CPU)
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR ${CUBESHIM_DIST_CPU})
set(CMAKE_C_COMPILER ${CUBESHIM_DIST_TOOLS}/cc)
set(CMAKE_CXX_COMPILER ${CUBESHIM_DIST_TOOLS}/c++)
set(CMAKE_ASM_COMPILER ${CUBESHIM_DIST_TOOLS}/cc)
set(CMAKE_AR ${CUBESHIM_DIST_TOOLS}/ar)
set(CMAKE_RANLIB ${CUBESHIM_DIST_TOOLS}/ranlib)

set(CMAKE_FIND_ROOT_PATH ${CUBESHIM_DIST_SYSROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_LIBDIR} ${CUBESHIM_DIST_SYSROOT}/usr/lib/pkgconfig)
# Headers that find_package does not look for. Other compilers find them in /usr/include.
set(CMAKE_CXX_STANDARD_INCLUDE_DIRECTORIES ${CUBESHIM_DIST_SYSROOT}/usr/include)

# The command writes its own man page and completion.
set(CMAKE_CROSSCOMPILING_EMULATOR ${CUBESHIM_DIST_TOOLS}/run)

# libgcc_s: a canceled thread, or an exception of the program, unwinds the library's frames with the
# system's unwinder. If zig's unwinder were linked into the library, it could not read the state of
# the system's. glibc needs libgcc_s for pthread_cancel, so all systems have it.
set(CMAKE_SHARED_LINKER_FLAGS_INIT "-s ${CUBESHIM_DIST_SYSROOT}/usr/lib/libgcc_s.so.1")
set(CMAKE_EXE_LINKER_FLAGS_INIT "-s -pie")
