"""Large files and the cache's disk: blocks that were evicted from memory are read from the disk, in
this job and in the next job. CUBESHIM_LIBRARY and CUBESHIM_LAGFS name the build's files."""
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
from bench.harness.mount import SlowMount  # noqa: E402
from tests.preload.large_job import environment  # noqa: E402

LAGFS = os.environ["CUBESHIM_LAGFS"]
# The files have three times the size of the memory. Their sizes are not multiples of a page.
FILES, SIZE = 8, 24_000_001
DEADLINE_S = 300
# The writer to the disk drops blocks if it cannot keep up, as on a busy machine. So a test gives it
# this many epochs or jobs.
PATIENCE = 60
# Reports for each epoch how many bytes were requested from the origin, and the digest of all bytes
# read. The job ends with the first epoch that requests at most `enough` bytes.
JOB = """
import hashlib, json, sys
counters, epochs, enough, paths = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
def asked():
    return json.loads(open(counters).read())["read"]["bytes"]
said = []
for epoch in range(epochs):
    before, digest = asked(), hashlib.blake2b()
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            while data := file.read(100_000):
                digest.update(data)
    said.append([asked() - before, digest.hexdigest()])
    if said[-1][0] <= enough:
        break
print(json.dumps(said))
"""


class LargeFilesOnDisk(unittest.TestCase):
    def setUp(self):
        self.scratch = Path(
            self.enterContext(tempfile.TemporaryDirectory(prefix="cubeshim-large-disk-")))
        self.source = self.scratch / "source"
        self.source.mkdir()
        self.digest = hashlib.blake2b()
        for i in range(FILES):
            self.write(i, data := random.Random(i).randbytes(SIZE))
            self.digest.update(data)
        self.mount = self.enterContext(
            SlowMount(Path(LAGFS), self.source, self.scratch, 200, direct=True))
        self.disk = self.scratch / "disk"
        self.disk.mkdir()
        self.report = self.scratch / "report.json"
        self.env = environment(str(self.mount.path), CUBESHIM_RAM="64M",
                               CUBESHIM_DISK_DIR=str(self.disk), CUBESHIM_DISK="1G",
                               CUBESHIM_ANNOUNCE="0", CUBESHIM_STATS=str(self.report),
                               CUBESHIM_STATS_FORMAT="json")

    def write(self, i: int, data: bytes, mtime: float = 1e9):
        (self.source / f"f{i}").write_bytes(data)
        os.utime(self.source / f"f{i}", (mtime, mtime))

    def start_job(self, epochs: int, files: int, enough: int,
                  **settings: str) -> subprocess.CompletedProcess:
        paths = [str(self.mount.path / f"f{i}") for i in range(files)]
        counters = str(self.mount.path / ".lagfs" / "counters.json")
        words = ["/usr/bin/python3", "-c", JOB, counters, str(epochs), str(enough), *paths]
        done = subprocess.run(words, env={**self.env, **settings}, capture_output=True, text=True,
                              timeout=DEADLINE_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def run_job(self, epochs: int, files: int = FILES, enough: int = -1, **settings: str) -> list:
        done = self.start_job(epochs, files, enough, **settings)
        self.assertEqual(done.stderr, "")
        return json.loads(done.stdout)

    def assert_a_later_job_has_them(self, digest: str, files: int = FILES, **settings: str):
        """Checks that a later job finds the bytes on the disk. Each job begins with an empty
        region, so bytes that its first epoch requests from the origin are not on the disk."""
        enough = int(0.05 * files * SIZE)
        asked = []
        while not asked or (asked[-1] > enough and len(asked) < PATIENCE):
            said = self.run_job(epochs=1, files=files, **settings)
            self.assertEqual(said[0][1], digest)
            asked.append(said[0][0])
        self.assertLessEqual(asked[-1], enough, asked)

    def reported(self) -> dict:
        return json.loads(self.report.read_text().splitlines()[-1])

    def test_data_larger_than_the_memory_is_read_from_the_origin_once(self):
        enough = int(0.05 * FILES * SIZE)
        said = self.run_job(PATIENCE, enough=enough)
        self.assertEqual({digest for _, digest in said}, {self.digest.hexdigest()})
        self.assertLessEqual(said[0][0], 1.05 * FILES * SIZE)
        self.assertLessEqual(said[-1][0], enough, said)
        self.assertGreater(self.reported()["blocks"]["disk"], 0.5 * FILES * SIZE)

    def test_next_job_has_them(self):
        self.run_job(epochs=2)
        self.assert_a_later_job_has_them(self.digest.hexdigest())

    def test_blocks_of_other_sizes(self):
        for block in ("4K", "64K", "2M"):
            with self.subTest(block=block):
                digest = hashlib.blake2b()
                for i in range(3):
                    digest.update(random.Random(i).randbytes(SIZE))
                said = self.run_job(epochs=2, files=3, CUBESHIM_BLOCK=block)
                self.assertEqual([found for _, found in said], [digest.hexdigest()] * 2)
                self.assert_a_later_job_has_them(digest.hexdigest(), files=3, CUBESHIM_BLOCK=block)

    def test_another_version_is_not_taken_for_the_old_one(self):
        self.run_job(epochs=1)
        changed = hashlib.blake2b()
        for i in range(FILES):
            data = random.Random(i).randbytes(SIZE)
            if i % 2 == 0:
                self.write(i, data := random.Random(100 + i).randbytes(SIZE), mtime=1e9 + 1)
            changed.update(data)
        said = self.run_job(epochs=2)
        self.assertEqual([digest for _, digest in said], [changed.hexdigest()] * 2)

    def test_damaged_disk_costs_no_byte(self):
        self.run_job(epochs=1)
        [directory] = [entry for entry in self.disk.iterdir() if entry.is_dir()]
        segments = sorted(path for path in directory.iterdir()
                          if path.stat().st_size > 1 << 20 and not path.name.startswith("index"))
        self.assertGreater(len(segments), 1)
        for path in segments:
            with open(path, "r+b") as file:
                for at in range(1 << 19, path.stat().st_size - (1 << 16), 3 << 20):
                    file.seek(at)
                    file.write(b"\xa5" * 64)
        done = self.start_job(epochs=1, files=FILES, enough=-1)
        self.assertEqual(json.loads(done.stdout)[0][1], self.digest.hexdigest())
        self.assertIn("a damaged record was found and dropped", done.stderr)

    def test_disk_too_small_for_a_block_is_reported(self):
        job = [
            "/usr/bin/python3", "-c", "open(__import__('sys').argv[1], 'rb').read(1)",
            str(self.mount.path / "f0")
        ]
        said = subprocess.run(
            job, capture_output=True, text=True, timeout=DEADLINE_S,
            env={**self.env, "CUBESHIM_DISK": "8M", "CUBESHIM_LOG": "info", "CUBESHIM_STATS": ""})
        self.assertRegex(
            said.stderr,
            r"CUBESHIM_DISK is too small for blocks of large files \(CUBESHIM_BLOCK=1048576\): 17 "
            r"MiB are needed"
        )


if __name__ == "__main__":
    unittest.main()
