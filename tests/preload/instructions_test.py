"""Calls take no more instructions than instructions.toml allows. Callgrind counts the instructions,
so other load on the machine does not matter.

    instructions_test.py [--show]     --show prints what was counted, and compares nothing
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib
import unittest

BOUNDS = tomllib.loads((pathlib.Path(__file__).parent / "instructions.toml").read_text())
FEW, MANY = 1000, 2000
# Checks that depend on the clock add instructions on a busy machine.
TRIES = 3


def instructions(probe, library, prefix, kind, path, times):
    environment = {
        "PATH": os.environ["PATH"], "LD_PRELOAD": library, "CUBESHIM_PREFIXES": str(prefix),
        "CUBESHIM_STATS": "off", "CUBESHIM_NAME": f"instructions-{os.getpid()}",
        "CUBESHIM_RAM": "64M", "CUBESHIM_PREFETCH": "0"
    }
    done = subprocess.run([
        "valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", probe, kind,
        str(path),
        str(times)
    ], env=environment, capture_output=True, text=True, timeout=120)
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode != 0 or found is None:
        raise AssertionError(f"{kind}: {done.returncode}, {done.stderr}")
    return int(found[1])


def per_call(probe, library, prefix, kind, path):
    few, many = (instructions(probe, library, prefix, kind, path, times) for times in (FEW, MANY))
    return (many - few) / (MANY - FEW)


class Instructions(unittest.TestCase):
    def check(self, where, path, prefix):
        for kind, most in BOUNDS[where].items():
            with self.subTest(call=kind, file=where):
                counted = float("inf")
                for _ in range(TRIES):
                    counted = min(
                        counted,
                        per_call(os.environ["INSTRUCTIONS_PROBE"], os.environ["CUBESHIM_LIBRARY"],
                                 prefix, kind, path))
                    if counted <= most:
                        break
                if "--show" in sys.argv:
                    print(f"{where}.{kind} = {counted:.0f}")
                else:
                    self.assertLessEqual(counted, most, f"{counted:.0f} instructions")

    def setUp(self):
        self.directory = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        for name in ("covered", "outside"):
            (self.directory / name).mkdir()
            (self.directory / name / "file").write_bytes(b"x" * 4096)
            os.utime(self.directory / name / "file", (1_600_000_000,) * 2)

    def test_hit(self):
        self.check("hit", self.directory / "covered" / "file", self.directory / "covered")

    def test_outside(self):
        self.check("outside", self.directory / "outside" / "file", self.directory / "covered")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
