"""A jump out of a signal handler leaves an open that waits for the origin. The file is served
afterwards like any other, and no fd is lost."""
import signal
import subprocess
import time
import unittest

from support import COMMAND, PATIENCE_S, Case


class Left(Case):
    def setUp(self):
        super().setUp()
        self.origin = self.mount("--direct", "--attr-timeout=1000", "--entry-timeout=1000")
        self.write_files(self.origin.source_root, 8)
        self.path = f"{self.origin.root}/f7"

    def check_afterwards(self, job):
        """Checks that the first open fetches the file, that the second open is a hit, and that no
        process believes that a fetch is still running."""
        for _ in range(2):
            job.stdin.write("\n")
            self.assertEqual(job.stdout.readline(), "read lowest\n")
        job.stdin.close()
        self.assertEqual(job.wait(), 0)
        self.tried()
        report = self.last_report()
        self.assertEqual((report["misses"], report["hits"]["ram"], report["bypassed"]["busy"]),
                         (1, 1, 0), report)

    def check_jump(self, operation):
        self.origin.script(f"hold {operation} 1")
        job = self.start_program("jump", self.path, PREFIXES=self.origin.root, PREFETCH="0")
        self.assertGreater(self.origin.held(), 0)
        job.send_signal(signal.SIGUSR1)
        self.assertEqual(job.stdout.readline(), "left\n")
        self.origin.script("clear")
        self.check_afterwards(job)

    def test_out_of_its_open(self):
        self.check_jump("open")

    def test_out_of_its_read(self):
        self.check_jump("read")

    def test_out_of_a_request_to_a_bucket(self):
        prefix, bucket = self.bucket(8, fault="forget")
        job = self.start_program("jump", prefix / "f7", PREFETCH="0", **bucket)
        deadline = time.monotonic() + PATIENCE_S
        while not self.requests.exists() or "GET f7" not in self.requests.read_text():
            self.assertLess(time.monotonic(), deadline, "the object is not asked for")
        job.send_signal(signal.SIGUSR1)
        self.assertEqual(job.stdout.readline(), "left\n")
        self.check_afterwards(job)

    def test_out_of_the_first_open_leaves_the_loaders_lock_free(self):
        job = self.start_program("first", self.path, PREFIXES=self.origin.root, PREFETCH="0")
        self.assertEqual(job.stdout.read(), "0\n")
        self.assertEqual(job.wait(), 0)

    def check_packed(self, read, **more):
        """Leaves twenty opens of a packed file by a jump, each at its n-th read. Neither memory nor
        fds may be lost."""
        data = self.write_files(self.work / "data", 8)
        subprocess.run([COMMAND, "pack", "-q", data, self.origin.source_root / "set.cube"],
                       check=True, stdout=subprocess.DEVNULL)
        prefix = self.work / "packed"
        job = self.start_program("jumps", prefix / "f7",
                                 PACKS=f"{prefix}={self.origin.root}/set.cube", PREFETCH="0",
                                 **more)
        # By now, the pack is open.
        self.assertEqual(job.stdout.readline(), "ready\n")
        for _ in range(20):
            self.origin.script("clear", f"hold read {read}")
            job.stdin.write("\n")
            self.assertGreater(self.origin.held(), 0)
            job.send_signal(signal.SIGUSR1)
            self.assertEqual(job.stdout.readline(), "left\n")
        self.origin.script("clear")
        job.stdin.close()
        mib, numbers = map(int, job.stdout.readline().split())
        self.assertEqual(job.wait(), 0)
        self.tried()
        # The resources of the last open are still held.
        self.assertLess(mib, 3)
        self.assertLess(numbers, 2)

    def test_out_of_a_read_of_a_pack(self):
        self.check_packed(1)

    def test_out_of_a_copy_of_a_packed_file(self):
        self.check_packed(2, MAX_FILE="100K")


if __name__ == "__main__":
    unittest.main()
