"""Shared by the tests of bench/: the path to its modules, scratch directories, and runs of its
scripts."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "bench"
BUILD = Path(os.environ.get("CUBESHIM_BUILD") or ROOT / "build")
LAGFS = BUILD / "lagfs" if os.access(BUILD / "lagfs", os.X_OK) else None
sys.path.insert(0, str(ROOT))


def needs(*modules: str):
    """Skips a test case, with the reason, if the machine lacks one of these Python modules."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    return unittest.skipIf(missing, f"this python3 has no {', '.join(missing)}")


def run_script(name: str, *arguments: object, **environment: str) -> subprocess.CompletedProcess:
    command = [sys.executable, str(BENCH / name), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120,
                          env={**os.environ, **environment})


class ScratchTest(unittest.TestCase):
    def setUp(self) -> None:
        scratch = tempfile.TemporaryDirectory(prefix="cubeshim-bench-test-")
        self.addCleanup(scratch.cleanup)
        self.scratch = Path(scratch.name)

    def assert_one_line_error(self, done: subprocess.CompletedProcess, status: int, *words:
                              str) -> None:
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)
