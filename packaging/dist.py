#!/usr/bin/python3
"""Makes a release: for each architecture one library and one command that run with glibc 2.17 and
later, as tar, wheel, deb and rpm; then checksums and a list of the components (SBOM). See
doc/RELEASE.md."""

import argparse
import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

import sbom
import symbols
import sysroot
import wheels
from targets import GLIBC, ROOT, TARGETS, Target, version

OWN_CPU = os.uname().machine
REQUIREMENTS = Path(__file__).with_name("requirements.txt")


def say(text: str) -> None:
    print(f"== {text}", flush=True)


def say_plan(out: Path, targets: list) -> None:
    """Prints what the run will install and do, because the run takes long."""
    has_tools = (out / "venv/requirements.txt").exists()
    # A run for two architectures, from an empty folder, took 23 minutes on 2 busy cores.
    say(f"a release for {' and '.join(targets)} in {out / 'release'}: some {12 * len(targets)} "
        f"minutes on 2 cores; nothing is installed outside {out}")
    if has_tools:
        say("the tools and sources of the last run are used again")
    else:
        say("first: the compiler and tools from PyPI (525 MB when installed) and the sources of "
            "four libraries from Debian (60 MB); later runs use them again")


def make_venv(where: Path) -> Path:
    """Returns its bin folder."""
    installed = where / "requirements.txt"
    if not installed.exists() or installed.read_text() != REQUIREMENTS.read_text():
        say("installing the tools of the release from PyPI")
        venv.create(where, with_pip=True, clear=True)
        subprocess.run(
            [where / "bin/pip", "install", "-q", "--disable-pip-version-check", "-r", REQUIREMENTS],
            check=True)
        installed.write_text(REQUIREMENTS.read_text())
    return where / "bin"


def make_tools(where: Path, python: Path, target: Target, out: Path) -> None:
    """Makes the compiler of one target under the names that build systems look for, and a wrapper
    that runs its output. For another architecture the wrapper runs the command of this machine's
    architecture, which writes the same texts."""
    where.mkdir(parents=True, exist_ok=True)
    tools = {
        "cc": f"cc -target {target.zig}", "c++": f"c++ -target {target.zig}", "ar": "ar",
        "ranlib": "ranlib"
    }
    scripts = {name: f'exec "{python}" -m ziglang {words} "$@"' for name, words in tools.items()}
    scripts[
        "run"] = 'exec "$@"' if target.cpu == OWN_CPU else (
            f'shift\nexec "{build_folder(out, OWN_CPU)}/cubeshim" "$@"')
    for name, script in scripts.items():
        (where / name).write_text(f"#!/bin/sh\n{script}\n")
        (where / name).chmod(0o755)


def build_folder(out: Path, cpu: str) -> Path:
    return out / f"build-{cpu}"


def build(work: Path, tools: Path, deps: Path, target: Target, jobs: int) -> Path:
    where = build_folder(work, target.cpu)
    subprocess.run([
        "cmake", "-S", ROOT, "-B", where, "-G", "Ninja", "-Wno-dev",
        f"-DCMAKE_TOOLCHAIN_FILE={ROOT / 'packaging/toolchain.cmake'}",
        f"-DCUBESHIM_DIST_TOOLS={tools}", f"-DCUBESHIM_DIST_SYSROOT={deps}",
        f"-DCUBESHIM_DIST_CPU={target.cpu}", "-DCUBESHIM_TESTS=OFF",
        "-DCUBESHIM_BENCH=OFF", "-DCUBESHIM_LAGFS=OFF", "-DCMAKE_INSTALL_PREFIX=/usr",
        "-DCMAKE_INSTALL_LIBDIR=lib"
    ], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", where, "-j", str(jobs), "--target", "product"], check=True)
    return where


def make_tar(stage: Path, out: Path, name: str, epoch: str) -> Path:
    """Makes a reproducible tar: the same tree gives the same bytes."""
    made = out / f"{name}.tar.gz"
    subprocess.run([
        "tar", "-C", stage.parent, "--sort=name", "--owner=0", "--group=0", "--numeric-owner",
        f"--mtime=@{epoch}", "-I", "gzip -9n", "-cf", made, stage.name
    ], check=True)
    return made


def make_packages(built: Path, work: Path, release: Path, target: Target) -> None:
    """Makes the packages. In each, the library is in the folder in which the system's loader looks
    up a library name without a path."""
    for kind, folder in (("DEB", f"lib/{target.cpu}-linux-gnu"), ("RPM", "lib64")):
        subprocess.run(["cmake", "-B", built, f"-DCMAKE_INSTALL_LIBDIR={folder}", "-Wno-dev"],
                       check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["cmake", "--build", built, "--target", "product"], check=True,
                       stdout=subprocess.DEVNULL)
        subprocess.run(["rm", "-rf", work], check=True)
        subprocess.run([
            "cpack", "-G", kind, "-B", work, "-D",
            f"CPACK_DEBIAN_PACKAGE_ARCHITECTURE={target.deb}", "-D",
            f"CPACK_RPM_PACKAGE_ARCHITECTURE={target.cpu}"
        ], check=True, cwd=built, stdout=subprocess.DEVNULL)
        for made in work.glob(f"*.{kind.lower()}"):
            made.rename(release / made.name)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "build-dist",
                        help="where to build; the release is in its folder `release`")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--target", choices=TARGETS, action="append",
                        help="one architecture only (may be given again)")
    options = parser.parse_args()
    out = options.out.resolve()
    epoch = subprocess.run(["git", "-c", "safe.directory=*", "log", "-1", "--format=%ct"], cwd=ROOT,
                           capture_output=True, text=True).stdout.strip()
    os.environ["SOURCE_DATE_EPOCH"] = epoch or "0"

    release = out / "release"
    release.mkdir(parents=True, exist_ok=True)
    for old in release.iterdir():
        if old.is_file():
            old.unlink()
    wanted = options.target or list(TARGETS)
    say_plan(out, wanted)
    programs = make_venv(out / "venv")
    # This machine's own target comes first, even if it is not requested, because its command writes
    # the man page and the completions for all.
    for target in sorted((TARGETS[cpu] for cpu in {OWN_CPU, *wanted}),
                         key=lambda target: target.cpu != OWN_CPU):
        say(f"{target.cpu}: library and command for glibc {GLIBC} and later")
        tools, deps = out / f"tools-{target.cpu}", out / f"sysroot-{target.cpu}"
        make_tools(tools, programs / "python", target, out)
        sysroot.make(deps, tools, out)
        built = build(out, tools, deps, target, options.jobs)
        if target.cpu not in wanted:
            continue
        name = f"cubeshim-{version()}-linux-{target.cpu}"
        stage = out / "stage" / name
        subprocess.run(["rm", "-rf", stage], check=True)
        subprocess.run(["cmake", "--install", built, "--prefix", stage], check=True,
                       stdout=subprocess.DEVNULL)
        symbols.check(stage / "lib/libcubeshim.so", GLIBC)
        symbols.check(stage / "bin/cubeshim", GLIBC)
        make_tar(stage, release, name, os.environ["SOURCE_DATE_EPOCH"])
        wheels.make(stage, out / f"wheel-{target.cpu}", release, target, programs)
        make_packages(built, out / f"cpack-{target.cpu}", release, target)
    sbom.write(release / f"cubeshim-{version()}.cdx.json", programs)
    made = sorted(path for path in release.iterdir() if path.is_file())
    sums = "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in made)
    (release / "SHA256SUMS").write_text(sums)
    for path in made:
        print(f"{path.stat().st_size:>10} {path.name}")
    say(f"made: {release}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
