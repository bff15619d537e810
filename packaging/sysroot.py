"""The dependencies of one target: headers of Debian's packages, and liburing, built from Debian's source package.

Nothing of the machine's own libc gets in: zig brings the headers of the oldest glibc.
"""

import shutil
import subprocess
from pathlib import Path

# Only their headers are used, so that one architecture's package serves all.
HEADER_PACKAGES = ["libfmt-dev", "libxxhash-dev", "libexpected-dev", "nlohmann-json3-dev", "libcli11-dev"]
SOURCE_PACKAGE = "liburing"
# The unwinder's part of libgcc_s.so.1 is the same for all architectures.
UNWINDER = {
    "GCC_3.0": [f"_Unwind_{name}" for name in ("DeleteException", "ForcedUnwind", "GetDataRelBase", "GetGR", "GetIP", "GetLanguageSpecificData",
                                                "GetRegionStart", "GetTextRelBase", "RaiseException", "Resume", "SetGR", "SetIP")],
    "GCC_3.3": [f"_Unwind_{name}" for name in ("Backtrace", "FindEnclosingFunction", "GetCFA", "Resume_or_Rethrow")],
    "GCC_4.2.0": ["_Unwind_GetIPInfo"],
}


def package_version(name: str) -> str:
    return subprocess.run(["dpkg-query", "-W", "-f", "${Version}", name], check=True, capture_output=True, text=True).stdout


def copy_packages(to: Path) -> None:
    for package in HEADER_PACKAGES:
        listed = subprocess.run(["dpkg", "-L", package], check=True, capture_output=True, text=True).stdout
        for name in map(Path, listed.splitlines()):
            if name.is_dir() or not str(name).startswith(("/usr/include/", "/usr/share/cmake/")):
                continue
            target = to / name.relative_to("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(name, target)


def unpack_source(work: Path) -> Path:
    """The source of the very version whose headers the ordinary build uses, by apt, which checks its signature."""
    done = work / SOURCE_PACKAGE
    if done.exists():
        return done
    lists = work / "lists"
    (lists / "partial").mkdir(parents=True, exist_ok=True)
    sources = work / "sources.list"
    # The repositories that this machine has its packages from, but for updates: two that name one file confuse apt.
    known = subprocess.run(["apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME) $(COMPONENT)", "Created-By: Packages"],
                           check=True, capture_output=True, text=True).stdout
    sources.write_text("".join(f"deb-src {line}\n" for line in sorted(set(known.splitlines())) if "-" not in line.split()[1]))
    apt = ["apt-get", "-qq", "-o", f"Dir::Etc::SourceList={sources}", "-o", "Dir::Etc::SourceParts=-", "-o", f"Dir::State::lists={lists}"]
    subprocess.run([*apt, "update"], check=True)
    version = package_version(f"{SOURCE_PACKAGE}-dev")
    source = work / f"{SOURCE_PACKAGE}.unpacked"
    shutil.rmtree(source, ignore_errors=True)
    subprocess.run([*apt, "-o", "APT::Sandbox::User=root", "source", "--download-only", f"{SOURCE_PACKAGE}={version}"], check=True, cwd=work)
    description = next(work.glob(f"{SOURCE_PACKAGE}_*.dsc"))
    subprocess.run(["dpkg-source", "-x", description, source], check=True, stdout=subprocess.DEVNULL)
    source.rename(done)
    return done


def build_liburing(source: Path, tools: Path, to: Path) -> None:
    work = to / "liburing-build"
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(source, work)
    quiet = {"check": True, "cwd": work, "stdout": subprocess.DEVNULL}
    subprocess.run(["./configure", f"--cc={tools / 'cc'}", f"--cxx={tools / 'c++'}", f"--prefix={to / 'usr'}"], **quiet)
    # Not the whole of it: that has man pages, tests and examples.
    subprocess.run(["make", "-C", "src", f"AR={tools / 'ar'}", f"RANLIB={tools / 'ranlib'}", "ENABLE_SHARED=0", "install"], **quiet)
    subprocess.run(["make", "liburing.pc"], **quiet)
    pkgconfig = to / "usr/lib/pkgconfig"
    pkgconfig.mkdir(parents=True, exist_ok=True)
    shutil.copy2(work / "liburing.pc", pkgconfig)


def make_libgcc(to: Path, tools: Path) -> None:
    """Names to link with: what the unwinder of the system exports, with its versions."""
    work = to / "usr/lib"
    source, versions = work / "libgcc_s.c", work / "libgcc_s.map"
    work.mkdir(parents=True, exist_ok=True)
    source.write_text("".join(f"void {name}(void) {{}}\n" for names in UNWINDER.values() for name in names))
    versions.write_text("".join(f"{version} {{ {'; '.join(names)}; }};\n" for version, names in UNWINDER.items()))
    subprocess.run([tools / "cc", "-shared", "-nostdlib", "-fno-sanitize=all", source, "-o", work / "libgcc_s.so.1", "-Wl,-soname,libgcc_s.so.1",
                    f"-Wl,--version-script={versions}"], check=True)


def make(to: Path, tools: Path, work: Path) -> None:
    if not (to / "made").exists():
        shutil.rmtree(to, ignore_errors=True)
        to.mkdir(parents=True)
        copy_packages(to)
        build_liburing(unpack_source(work), tools, to)
        (to / "made").touch()
    make_libgcc(to, tools)
