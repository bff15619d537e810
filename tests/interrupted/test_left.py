"""An open that waits for the origin is left by a jump out of a signal handler. The file is served afterwards as any other, and
no number is lost."""
import signal
import unittest

from support import Case


class Left(Case):
    def setUp(self):
        super().setUp()
        self.origin = self.mount("--direct", "--attr-timeout=1000", "--entry-timeout=1000")
        self.write_files(self.origin.source_root, 8)
        self.path = f"{self.origin.root}/f7"

    def check_afterwards(self, job):
        """The first open fetches it, the second one is a hit; nobody found that somebody else is at it."""
        self.origin.script("clear")
        for _ in range(2):
            job.stdin.write("\n")
            self.assertEqual(job.stdout.readline(), "read lowest\n")
        job.stdin.close()
        self.assertEqual(job.wait(), 0)
        self.tried()
        report = self.last_report()
        self.assertEqual((report["misses"], report["hits"]["ram"], report["bypassed"]["busy"]), (1, 1, 0), report)

    def check_jump(self, operation):
        self.origin.script(f"hold {operation} 1")
        job = self.start_program("jump", self.path, PREFIXES=self.origin.root, PREFETCH="0")
        self.assertGreater(self.origin.held(), 0)
        job.send_signal(signal.SIGUSR1)
        self.assertEqual(job.stdout.readline(), "left\n")
        self.check_afterwards(job)

    def test_out_of_its_open(self):
        self.check_jump("open")

    def test_out_of_its_read(self):
        self.check_jump("read")


if __name__ == "__main__":
    unittest.main()
