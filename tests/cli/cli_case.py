"""Shared by the tests of the `cubeshim` command. CUBESHIM_COMMAND is its path."""
import ctypes
import os
import struct
import subprocess
import tempfile
import unittest
from pathlib import Path

COMMAND = os.environ["CUBESHIM_COMMAND"]
CONTENT = bytes(range(256)) * 200

libc = ctypes.CDLL(None, use_errno=True)


def refuse(*numbers):
    """Installs a filter on this process and its programs, like a container: these system calls fail
    with EPERM."""
    allowed, refused = 0x7fff0000, 0x00050001
    code = [(0x20, 0, 0, 0)]
    for number in numbers:
        code += [(0x15, 0, 1, number), (0x06, 0, 0, refused)]
    code.append((0x06, 0, 0, allowed))
    rows = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *row) for row in code))
    program = struct.pack("HxxxxxxP", len(code), ctypes.addressof(rows))
    no_new_privileges, set_seccomp, filter_mode = 38, 22, 2
    if libc.prctl(no_new_privileges, 1, 0, 0, 0) != 0 or libc.prctl(set_seccomp, filter_mode,
                                                                    program, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no filter")


def obey_modes():
    """Takes root's right to read any file from this process and its programs."""
    drop_from_bounding_set, override, read_search = 24, 1, 2
    for capability in (override, read_search):
        libc.prctl(drop_from_bounding_set, capability, 0, 0, 0)


class Case(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory(prefix="cubeshim-cli-")
        self.addCleanup(made.cleanup)
        self.data = Path(made.name) / "data"
        self.data.mkdir()
        self.file = self.data / "f"
        self.file.write_bytes(CONTENT)
        self.name = f"cli-{os.getpid()}-{self.id().rsplit('.', 1)[-1]}"[:64]
        self.region = Path(f"/dev/shm/cubeshim-{os.geteuid()}-{self.name}")
        self.addCleanup(lambda: self.region.unlink(missing_ok=True))

    def command(self, *words, env=None, **options):
        clean = {
            k: v
            for k, v in os.environ.items()
            if not k.startswith("CUBESHIM_") and k != "LD_PRELOAD"
        }
        return subprocess.run([COMMAND, *map(str, words)], capture_output=True,
                              env=clean | (env or {}), timeout=300, **options)

    def run_program(self, *words, options=()):
        return self.command("run", "-p", self.data, "--name", self.name, "--ram", "32M", *options,
                            *words)

    def start(self, *words, env=None, **streams):
        """Starts the command. If it still runs when the test ends, it is ended."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith("CUBESHIM_")}
        child = subprocess.Popen([COMMAND, *map(str, words)], env=clean | (env or {}), **streams)
        self.addCleanup(
            lambda:
            [stream.close() for stream in (child.stdin, child.stdout, child.stderr) if stream])
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        return child

    def keep_a_region(self):
        done = self.run_program("cat", self.file, options=["--ram-keep", "1"])
        self.assertEqual(done.stdout, CONTENT)
        self.assertTrue(self.region.exists())
