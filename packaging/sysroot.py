"""The dependencies of one target: headers of Debian's packages, and liburing, prometheus-cpp,
civetweb and the hashes of mbedTLS, built from Debian's source packages.

The machine's own libc is not used: zig provides the headers of the oldest glibc.
"""

import shutil
import subprocess
from pathlib import Path

# Only their headers are used, so the packages of any architecture suffice.
HEADER_PACKAGES = [
    "libfmt-dev", "libxxhash-dev", "libexpected-dev", "nlohmann-json3-dev", "libcli11-dev",
    "libcurl4-openssl-dev"
]
# Source packages, each with the package that has its headers.
SOURCE_PACKAGES = {
    "liburing": "liburing-dev", "prometheus-cpp": "prometheus-cpp-dev",
    "civetweb": "libcivetweb-dev", "mbedtls": "libmbedtls-dev"
}
# SHA-256 and MD5, which sign requests to object stores and check the answers.
HASH_SOURCES = ["library/sha256.c", "library/md5.c", "library/platform_util.c"]
# The sources of the server of `cubeshim exporter`. It serves no files and runs no programs.
SERVER_SOURCES = {
    "civetweb": ["src/civetweb.c", "src/CivetServer.cpp"],
    "prometheus-cpp": ["core/src/*.cc", "core/src/detail/*.cc", "pull/src/*.cc"]
}
SERVER_FLAGS = [
    "-O2",
    "-fPIC",
    "-DNDEBUG",
    "-DUSE_IPV6",
    "-DNO_SSL",
    "-DNO_CGI",
    "-DNO_FILES",
    # civetweb would include the build date, but two runs must give the same bytes.
    "-Wno-builtin-macro-redefined",
    '-D__DATE__="none"'
]
# The part of libgcc_s.so.1 that belongs to the unwinder is the same for all architectures.
UNWINDER = {
    "GCC_3.0": [
        f"_Unwind_{name}" for name in ("DeleteException", "ForcedUnwind", "GetDataRelBase", "GetGR",
                                       "GetIP", "GetLanguageSpecificData", "GetRegionStart",
                                       "GetTextRelBase", "RaiseException", "Resume", "SetGR",
                                       "SetIP")
    ], "GCC_3.3": [
        f"_Unwind_{name}" for name in ("Backtrace", "FindEnclosingFunction", "GetCFA",
                                       "Resume_or_Rethrow")
    ], "GCC_4.2.0": ["_Unwind_GetIPInfo"],
}


def package_version(name: str) -> str:
    return subprocess.run(["dpkg-query", "-W", "-f", "${Version}", name], check=True,
                          capture_output=True, text=True).stdout


def copy_packages(to: Path) -> None:
    for package in (*HEADER_PACKAGES, "prometheus-cpp-dev", "libcivetweb-dev", "libmbedtls-dev"):
        listed = subprocess.run(["dpkg", "-L", package], check=True, capture_output=True,
                                text=True).stdout
        for name in map(Path, listed.splitlines()):
            if name.is_dir() or not str(name).startswith(("/usr/include/", "/usr/share/cmake/")):
                continue
            # curl's headers lie in a folder of the architecture, but are the same for all.
            parts = [part for part in name.parts[1:] if not part.endswith("-linux-gnu")]
            target = to.joinpath(*parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(name, target)


def unpack_source(work: Path, package: str) -> Path:
    """Gets the source of exactly the version whose headers the ordinary build uses. It uses apt,
    which checks the signature."""
    done = work / package
    if done.exists():
        return done
    lists = work / "lists"
    (lists / "partial").mkdir(parents=True, exist_ok=True)
    sources = work / "sources.list"
    # The repositories of this machine's packages, without update repositories, because two entries
    # for the same file confuse apt.
    known = subprocess.run([
        "apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME) $(COMPONENT)",
        "Created-By: Packages"
    ], check=True, capture_output=True, text=True).stdout
    sources.write_text("".join(f"deb-src {line}\n" for line in sorted(set(known.splitlines()))
                               if "-" not in line.split()[1]))
    apt = [
        "apt-get", "-qq", "-o", f"Dir::Etc::SourceList={sources}", "-o", "Dir::Etc::SourceParts=-",
        "-o", f"Dir::State::lists={lists}"
    ]
    subprocess.run([*apt, "update"], check=True)
    version = package_version(SOURCE_PACKAGES[package])
    source = work / f"{package}.unpacked"
    shutil.rmtree(source, ignore_errors=True)
    subprocess.run([
        *apt, "-o", "APT::Sandbox::User=root", "source", "--download-only", f"{package}={version}"
    ], check=True, cwd=work)
    description = next(work.glob(f"{package}_*.dsc"))
    subprocess.run(["dpkg-source", "-x", description, source], check=True,
                   stdout=subprocess.DEVNULL)
    source.rename(done)
    return done


def build_liburing(source: Path, tools: Path, to: Path) -> None:
    work = to / "liburing-build"
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(source, work)
    quiet = {"check": True, "cwd": work, "stdout": subprocess.DEVNULL}
    subprocess.run(
        ["./configure", f"--cc={tools / 'cc'}", f"--cxx={tools / 'c++'}", f"--prefix={to / 'usr'}"],
        **quiet)
    # Installs only src, because the other folders have man pages, tests and examples.
    subprocess.run([
        "make", "-C", "src", f"AR={tools / 'ar'}", f"RANLIB={tools / 'ranlib'}", "ENABLE_SHARED=0",
        "install"
    ], **quiet)
    subprocess.run(["make", "liburing.pc"], **quiet)
    pkgconfig = to / "usr/lib/pkgconfig"
    pkgconfig.mkdir(parents=True, exist_ok=True)
    shutil.copy2(work / "liburing.pc", pkgconfig)


def build_server(sources: dict[str, Path], tools: Path, to: Path) -> None:
    """Makes one archive of prometheus-cpp and civetweb. Their own builds would run their output,
    which is built for another machine."""
    work = to / "server-build"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    objects = []
    for package, patterns in SERVER_SOURCES.items():
        root = sources[package]
        folders = [
            f"-I{folder}" for name in ("include", "core/include", "pull/include", "pull/src")
            if (folder := root / name).is_dir()
        ]
        for source in [source for pattern in patterns for source in sorted(root.glob(pattern))]:
            compiler = [tools / "cc"] if source.suffix == ".c" else [tools / "c++", "-std=c++17"]
            objects.append(work / f"{package}-{source.stem}.o")
            subprocess.run([
                *compiler, *SERVER_FLAGS, f"-ffile-prefix-map={root}={package}", *folders,
                f"-I{to / 'usr/include'}", "-c", source, "-o", objects[-1]
            ], check=True)
    library = to / "usr/lib/libprometheus-cpp-pull.a"
    library.unlink(missing_ok=True)
    subprocess.run([tools / "ar", "rcs", library, *objects], check=True)
    (to / "usr/lib/pkgconfig/prometheus-cpp-pull.pc").write_text(
        "Name: prometheus-cpp-pull\nDescription: with civetweb\n"
        f"Version: {package_version('prometheus-cpp-dev').split('-')[0]}\nLibs: {library}\n")


def build_hashes(source: Path, tools: Path, to: Path) -> None:
    work = to / "hash-build"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    objects = []
    for name in HASH_SOURCES:
        objects.append(work / f"{Path(name).stem}.o")
        subprocess.run([
            tools / "cc", "-O2", "-fPIC", f"-ffile-prefix-map={source}=mbedtls",
            f"-I{source / 'include'}", "-c", source / name, "-o", objects[-1]
        ], check=True)
    library = to / "usr/lib/libmbedcrypto.a"
    library.unlink(missing_ok=True)
    subprocess.run([tools / "ar", "rcs", library, *objects], check=True)


def make_libgcc(to: Path, tools: Path) -> None:
    """Makes a stub library to link with. It has the names that the system's unwinder exports, with
    their versions."""
    work = to / "usr/lib"
    source, versions = work / "libgcc_s.c", work / "libgcc_s.map"
    work.mkdir(parents=True, exist_ok=True)
    source.write_text("".join(
        f"void {name}(void) {{}}\n" for names in UNWINDER.values() for name in names))
    versions.write_text("".join(
        f"{version} {{ {'; '.join(names)}; }};\n" for version, names in UNWINDER.items()))
    subprocess.run([
        tools / "cc", "-shared", "-nostdlib", "-fno-sanitize=all", source, "-o",
        work / "libgcc_s.so.1", "-Wl,-soname,libgcc_s.so.1", f"-Wl,--version-script={versions}"
    ], check=True)


def make(to: Path, tools: Path, work: Path) -> None:
    if not (to / "made").exists():
        shutil.rmtree(to, ignore_errors=True)
        to.mkdir(parents=True)
        copy_packages(to)
        sources = {package: unpack_source(work, package) for package in SOURCE_PACKAGES}
        build_liburing(sources["liburing"], tools, to)
        build_server(sources, tools, to)
        build_hashes(sources["mbedtls"], tools, to)
        (to / "made").touch()
    make_libgcc(to, tools)
