"""Files that a program opens relative to an open directory are served. The directory can be the
prefix itself, a directory above or below the prefix, an O_PATH fd, or a dup. CUBESHIM_LIBRARY names
the build's library."""
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
from tests.preload.large_job import environment  # noqa: E402

FILES, EPOCHS = 5, 2
# P is the prefix. A program puts an open directory into `d`, and the path from there to the files
# into `way`.
PROLOGUE = """
import os, sys
P = sys.argv[1]
ABOVE, NAME = os.path.split(P)
way = ""
def moved_to(directory, path, flags=0):
    os.chdir(directory)
    fd = os.open(path, flags)
    os.chdir("/")
    return fd
"""
EPILOGUE = f"""
for n in list(range({FILES})) * {EPOCHS}:
    fd = os.open(os.path.join(way, str(n)), os.O_RDONLY, dir_fd=d)
    assert os.read(fd, 100) == b"%d" % n
    os.close(fd)
"""
OPENED = (
    "d = os.open(P, os.O_RDONLY)",
    "d = os.open(P + '/', os.O_RDONLY)",
    "d = os.open(P + '//.', os.O_RDONLY)",
    "d = os.open(P, os.O_PATH)",
    "d = os.open(P, os.O_DIRECTORY)",
    "d = os.dup(os.open(P, os.O_RDONLY))",
    "d = os.dup2(os.open(P, os.O_DIRECTORY), 99)",
    "d = next((os.dup(fd) for _, _, _, fd in os.fwalk(P)))",
    "d = os.open(ABOVE, os.O_RDONLY); way = NAME",
    "d = os.open('/', os.O_RDONLY); way = P[1:]",
    "d = os.open(NAME, os.O_RDONLY, dir_fd=os.open(ABOVE, os.O_RDONLY))",
    "d = os.open('..', os.O_PATH, dir_fd=os.open(P + '/below', os.O_RDONLY))",
    "d = moved_to(P, '.')",
    "d = moved_to(P + '/below', '..')",
    "d = moved_to(ABOVE, NAME)",
    "d = moved_to(ABOVE, NAME, os.O_PATH)",
    "d = os.open(P + '/below', os.O_PATH)",
    "d = os.open('below', os.O_PATH, dir_fd=os.open(P, os.O_PATH))",
)


class DirectoryFds(unittest.TestCase):
    def setUp(self):
        self.data = Path(self.enterContext(tempfile.TemporaryDirectory(prefix="cubeshim-dirfd-")))
        for directory in (self.data / "data", self.data / "data" / "below"):
            directory.mkdir()
            for n in range(FILES):
                (directory / str(n)).write_bytes(b"%d" % n)
                os.utime(directory / str(n), (1e9, 1e9))

    def report(self, program: str) -> dict:
        report = self.data / "report.json"
        report.unlink(missing_ok=True)
        env = environment(str(self.data / "data"), CUBESHIM_STATS=str(report),
                          CUBESHIM_STATS_FORMAT="json", CUBESHIM_PREFETCH="0")
        done = subprocess.run(
            ["/usr/bin/python3", "-c", PROLOGUE + program + EPILOGUE,
             str(self.data / "data")], env=env, capture_output=True, text=True, timeout=300)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return json.loads(report.read_text().splitlines()[-1]) if report.exists() else {}

    def test_files_relative_to_an_open_directory_are_served(self):
        for opened in OPENED:
            with self.subTest(opened):
                hits = self.report(opened).get("hits", {"ram": 0})
                self.assertEqual(hits["ram"], FILES * (EPOCHS - 1))


if __name__ == "__main__":
    unittest.main()
