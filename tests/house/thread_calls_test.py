"""Threads with their own fd table run the code of cache/ and prefetch/. Other libraries can hook
functions of libc and of the runtimes. This code must not call a function whose hooks do more than
observe, because an fd that such a hook opens would be another file in the program's table.

    thread_calls_test.py ARCHIVE ...     exit status 1 and a line for each call that is in neither
                                         list
"""

import re
import subprocess
import sys

# Pure functions of memory and text, our own operator new (shim/process/own_heap.cc), and the names
# that the compiler and the C++ runtime add (shim/process/own_exceptions.cc has the rest of those).
PURE = {
    "memchr", "memcmp", "memcpy", "memmove", "memset", "strcmp", "strlen", "strnlen",
    "strerrordesc_np", "__popcountdi2", "__errno_location", "__cxa_begin_catch", "__cxa_end_catch",
    "__cxa_rethrow", "__cxa_throw", "__cxa_allocate_exception", "__cxa_free_exception",
    "__cxa_pure_virtual", "__cxa_throw_bad_array_new_length", "__gxx_personality_v0",
    "_Unwind_Resume", "_GLOBAL_OFFSET_TABLE_", "__libc_single_threaded", "__stack_chk_fail",
    "__tsan_init", "__lsan_do_leak_check", "__cxa_guard_acquire", "__cxa_guard_release",
    "__cxa_guard_abort", "__dso_handle",
}
# Only threads of the program call these functions, and keepers, which have the program's fd table
# (prefetch/threads/background_thread.cc).
BY_OTHERS = {
    "pthread_create": "by a keeper",
    "pthread_attr_init": "by a keeper",
    "pthread_attr_destroy": "by a keeper",
    "pthread_attr_setdetachstate": "by a keeper",
    "pthread_attr_setstacksize": "by a keeper",
    "pthread_attr_setstack": "by a keeper",
    "getenv": "by the thread that attaches",
    "getauxval": "by a constructor",
    "environ": "as the settings are read",
    "dlopen": "by a constructor",
    "dlsym": "by a constructor",
    "dlclose": "by a constructor",
    "pthread_mutex_init": "by who makes the region",
    "pthread_mutex_destroy": "by who lets go of the disk",
    "pthread_mutexattr_init": "by who makes the region",
    "pthread_mutexattr_destroy": "by who makes the region",
    "pthread_mutexattr_setpshared": "by who makes the region",
    "pthread_mutexattr_setrobust": "by who makes the region",
    "pthread_mutexattr_settype": "by who makes the region",
    # Only the addresses of these are taken: libc's own functions are called
    # (cache/base/libc_functions.h).
    "pthread_mutex_lock": "an address",
    "pthread_mutex_unlock": "an address",
    "pthread_mutex_timedlock": "an address",
    "pthread_mutex_clocklock": "an address",
    "pthread_mutex_consistent": "an address",
    "inet_pton": "an address",
    "strerror_r": "before glibc 2.32",
}
OURS = re.compile(r"^(_ZN?K?4cube|_ZTV?|io_uring_|__io_uring_|cube_|XXH)")
# libstdc++ (static), including operator new and delete.
RUNTIME = re.compile(
    r"^_Z(?:N?K?S|St|n[wa]|d[la]|T[ISV]|GV|N9__gnu_cxx|N10__cxxabiv1|N3fmt|NK3fmt|TIN)")
ROW = re.compile(r"^\s*(?:[0-9a-f]+)?\s+[Uw] (\S+)", re.M)


def undefined(archive: str) -> set[str]:
    text = subprocess.run(["nm", "-u", archive], check=True, capture_output=True, text=True).stdout
    return {name.split("@")[0] for name in ROW.findall(text)}


def main(*archives: str) -> int:
    found = {archive: undefined(archive) for archive in archives}
    assert all("memcpy" in names for names in found.values()), "the output of nm is not understood"
    bad = [
        f"{archive}: calls {name}" for archive, names in found.items() for name in sorted(names)
        if name not in PURE and name not in BY_OTHERS and not OURS.match(name)
        and not RUNTIME.match(name)
    ]
    print("\n".join(bad) or f"{len(set().union(*found.values()))} names, none of them of the host")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
