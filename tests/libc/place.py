"""Finds a libc, and runs programs with it."""

import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

CPUS = {62: "x86_64", 183: "aarch64"}  # by e_machine


def cpu_of(program: Path) -> str:
    with program.open("rb") as opened:
        return CPUS[struct.unpack_from("<H", opened.read(20), 18)[0]]


class Libc:
    """A libc. `work` is a folder for copies of programs and for data, while the object is
    entered."""

    MARK = ""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder, self.work = name, folder, Path()
        self.settings: dict[str, str] = {}

    @classmethod
    def is_at(cls, folder: Path) -> bool:
        return (folder / cls.MARK).exists()

    def cpu(self) -> str:
        return cpu_of(self.folder / self.MARK)

    @contextmanager
    def entered(self, files: list[Path]) -> Iterator[None]:
        with ExitStack() as stack:
            self.work = Path(
                stack.enter_context(
                    tempfile.TemporaryDirectory(prefix="cubeshim-libc-", dir=self.temporary())))
            self.work.chmod(0o755)
            for file in files:
                shutil.copy(file, self.work)
            self.prepare(stack)
            yield

    def temporary(self) -> Path:
        return Path("/tmp")

    def prepare(self, stack: ExitStack) -> None:
        """Makes the copies in `work` run with this libc."""

    def inside(self, path: Path) -> str:
        """Returns the path as the programs see it."""
        return str(path)

    def program(self, name: str) -> str:
        return self.inside(self.work / name)

    def run(self, words: list[str], settings: dict[str, str],
            timeout: float = 600) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, env={**os.environ, **self.settings,
                                          **settings}, capture_output=True, text=True,
                              errors="replace", timeout=timeout, stdin=subprocess.DEVNULL)

    def wrapped(self, name: str) -> Path:
        """Returns a program that can be run from outside the root, like any other program."""
        return self.work / name

    def version(self) -> str:
        empty = self.work / "empty"
        empty.write_text("\n")
        return self.run([self.program("single"), self.inside(empty), "0"], {}).stdout.split()[1]


class Installed(Libc):
    """A folder into which glibc was installed. Programs started by the tests (sh, cat) keep the
    machine's own libc."""

    MARK = "lib/ld-linux-x86-64.so.2"

    def prepare(self, stack: ExitStack) -> None:
        for file in self.work.iterdir():
            with file.open("rb") as opened:
                is_program = opened.read(4) == b"\x7fELF" and not file.name.endswith(".so")
            if is_program:
                subprocess.run([
                    "patchelf", "--set-interpreter", self.folder / self.MARK, "--force-rpath",
                    "--set-rpath", self.folder / "lib", file
                ], check=True)


class System(Libc):
    """The root of a system. A system of another architecture runs under qemu-user, which the kernel
    starts (binfmt_misc)."""

    MARK = "bin/sh"

    def temporary(self) -> Path:
        return self.folder / "tmp"

    def prepare(self, stack: ExitStack) -> None:
        # The root is a separate mount, so that the tests can make a mount namespace in it.
        places = [(self.folder, self.folder),
                  *((Path("/", name), self.folder / name) for name in ("dev", "dev/shm", "proc"))]
        for source, target in places:
            subprocess.run(["mount", "--bind", source, target], check=True)
            stack.callback(subprocess.run, ["umount", "-l", target], check=True)

    def inside(self, path: Path) -> str:
        return f"/{path.relative_to(self.folder)}"

    def run(self, words: list[str], settings: dict[str, str],
            timeout: float = 600) -> subprocess.CompletedProcess[str]:
        # The library is for the program, not for chroot itself.
        return super().run([
            "chroot",
            str(self.folder), "env", *(f"{name}={value}" for name, value in settings.items()),
            *words
        ], {}, timeout)

    def wrapped(self, name: str) -> Path:
        script = self.work / f"{name}.sh"
        script.write_text(f'#!/bin/sh\nexec chroot {self.folder} {self.program(name)} "$@"\n')
        script.chmod(0o755)
        return script
