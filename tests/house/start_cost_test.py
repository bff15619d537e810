"""Finds costs that the library would add to the start and the end of each program of a job, even if
it opens nothing under a prefix.

    start_cost_test.py LIBRARY OBJECT...     exit status 1 and a line for each such cost

OBJECT: the object files and archives of the project's own code in the library.
"""

import re
import subprocess
import sys
from pathlib import Path

# The libraries that ours may need. The loader takes 60 us to map one. Every program has libc and
# the loader. The other libraries provide symbols for old versions of glibc, or belong to the
# program.
LIBRARIES = {
    "libc.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1", "libpthread.so.0", "libdl.so.2",
    "librt.so.1", "libgcc_s.so.1"
}
# Each relocation writes to a page of the library's own data, or makes the loader read a page of its
# table.
MOST_RELOCATIONS = 1300
# Parts of the C++ library that nothing here needs, each with many relocations.
HEAVY = re.compile(r"\bstd::locale::|\bcplus_demangle_|itanium_demangle")


def output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def needless_libraries(dynamic: str) -> list[str]:
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic)
    assert needed, "the dynamic section is not understood"
    return [f"the loader also maps {name}" for name in needed if name not in LIBRARIES]


def late_destructors(name: str, symbols: str) -> list[str]:
    """Finds static objects with a destructor. A destructor runs at the end of each program, touches
    the whole object, and runs before the program's last calls."""
    return [f"{name}: an object in static memory has a destructor"] if re.search(
        r"\bU (__cxa_atexit|atexit)\b", symbols) else []


def heavy_parts(symbols: str) -> list[str]:
    return [f"the library holds {name}" for name in sorted(set(HEAVY.findall(symbols)))]


def problems(library: str, objects: list[str]) -> list[str]:
    found = needless_libraries(output("readelf", "-dW", library))
    for name in objects:
        found += late_destructors(Path(name).name, output("nm", name))
    symbols = output("nm", "-C", library)
    assert "cube::shim::" in symbols, "the library is stripped"
    found += heavy_parts(symbols)
    relocations = re.findall(r"^[0-9a-f]+ +[0-9a-f]+ R_", output("readelf", "-rW", library), re.M)
    assert relocations, "the relocations are not understood"
    if len(relocations) > MOST_RELOCATIONS:
        found.append(f"{len(relocations)} relocations, {MOST_RELOCATIONS} at most")
    return found


def self_check() -> None:
    """Checks that the rules can fail."""
    row = " 0x0000000000000001 (NEEDED)             Shared library: [{}]\n"
    assert needless_libraries(row.format("libc.so.6")) == []
    assert needless_libraries(row.format("libm.so.6")) == ["the loader also maps libm.so.6"]
    assert late_destructors("a.o",
                            "                 U abort\n                 U __cxa_atexit\n") != []
    assert heavy_parts("00 t std::locale::classic()\n00 t f(fmt::v9::detail::locale_ref)\n") == [
        "the library holds std::locale::"
    ]
    assert late_destructors("a.o", "0000000000000000 T my_atexit\n") == []


if __name__ == "__main__":
    self_check()
    found = problems(sys.argv[1], sys.argv[2:])
    print("\n".join(found) or "start: nothing needless is loaded, relocated or destroyed")
    sys.exit(bool(found))
