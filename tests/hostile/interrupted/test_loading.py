"""The library in a process that loads and unloads it, and in a process that preloads a similar
library after it."""
import json
import os
import subprocess
import unittest

from support import FAKER, PATIENCE_S, Case, crash

STATS = """
import json, os, sys
path, numbers = sys.argv[1], set()
for _ in range(3):
    numbers.add(len(os.listdir("/proc/self/fd")))
    with open(path, "rb") as file:
        seen = [os.stat(path).st_uid, os.lstat(path).st_uid, os.fstat(file.fileno()).st_uid,
                len(file.read())]
assert len(numbers) == 1, numbers
print(json.dumps(seen))
"""


class Loading(Case):
    def setUp(self):
        super().setUp()
        self.data = self.write_files(self.work / "data", 8)

    def test_loaded_and_unloaded_by_threads_that_end(self):
        for preload in (None, crash.LIBRARY):
            with self.subTest(preload=preload):
                done = self.run_program("unload", crash.LIBRARY, self.data / "f7",
                                        PREFIXES=self.data, PRELOAD=preload)
                self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "well\n", ""))

    def test_library_behind_it_that_reports_other_owners(self):
        for preload in (FAKER, f"{FAKER}:{crash.LIBRARY}", f"{crash.LIBRARY}:{FAKER}"):
            with self.subTest(preload=preload):
                done = subprocess.run(["/usr/bin/python3", "-c", STATS, self.data / "f7"],
                                      capture_output=True, text=True,
                                      env=self.environment(PREFIXES=self.data,
                                                           PRELOAD=preload), timeout=PATIENCE_S)
                self.assertEqual((done.stderr, json.loads(done.stdout)),
                                 ("", [12345, 12345, 12345, 200000]))
                self.tried()


if __name__ == "__main__":
    unittest.main()
