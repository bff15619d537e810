"""A program that never accesses a prefix starts even if the origin no longer answers."""
import os
import subprocess
import unittest

from support import PATIENCE_S, Case

# The prefix is opened by another name.
READ = "import sys; open(sys.argv[1]).read()"


class Starting(Case):
    def setUp(self):
        super().setUp()
        self.origin = self.mount("--direct")
        self.write_files(self.origin.source_root / "sub", 2)

    def run_it(self, *command, **more):
        done = subprocess.run(command, env=self.environment(**more), capture_output=True, text=True,
                              timeout=PATIENCE_S)
        self.tried()
        return done

    def check_start(self, prefix, rule):
        self.origin.script(*rule)
        try:
            done = self.run_it("/bin/true", PREFIXES=prefix)
        finally:
            self.origin.script("clear")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_with_a_directory_of_the_mount_as_prefix(self):
        self.check_start(f"{self.origin.root}/sub", ["hold lookup 1 100"])

    def test_with_the_mount_itself_as_prefix(self):
        self.check_start(self.origin.root, ["hold lookup 1 100", "hold getattr 1 100"])

    def test_with_a_link_into_the_mount_as_prefix(self):
        link = self.work / "link"
        link.symlink_to(f"{self.origin.root}/sub")
        self.check_start(link, ["hold lookup 1 100"])

    def test_a_user_who_wants_each_prefix_checked_waits(self):
        done = self.run_it("/bin/true", PREFIXES=f"{self.origin.root}/none", STRICT="1")
        self.assertEqual(done.returncode, 2)
        self.assertIn("No such file or directory", done.stderr)

    def test_a_prefix_on_this_machine_is_checked(self):
        done = self.run_it("/bin/true", PREFIXES=self.work / "none")
        self.assertEqual(done.returncode, 0)
        self.assertIn("No such file or directory", done.stderr)

    def test_a_file_of_a_server_by_another_name_is_noted(self):
        origin = self.mount("--direct", "--attr-timeout=1000", "--entry-timeout=1000")
        self.write_files(origin.source_root / "sub", 2)
        link = self.work / "link"
        link.symlink_to(f"{origin.root}/sub")
        # When the kernel follows the link, it updates the link's access time, which needs the
        # origin. One update is enough.
        while not os.statvfs(self.work).f_flag & os.ST_NOATIME and link.lstat(
        ).st_atime_ns <= link.lstat().st_ctime_ns:
            link.stat()
        done = self.run_it("/usr/bin/python3", "-c", READ, f"{origin.root}/sub/f1", PREFIXES=link,
                           STATS="stderr", STATS_FORMAT="text")
        self.assertIn(f"{origin.root}/sub/f1", done.stderr)


if __name__ == "__main__":
    unittest.main()
