"""The region's file: the users that may read it, and files of others under its name."""
import fcntl
import os
import signal
import socket
import unittest

from support import CONTENT, NOBODY, USER, Case, as_root, as_user, snapshot, write

STAT = """
import os, stat
with open(F, 'rb') as file: file.read()
for name in os.listdir(R):
  st = os.lstat(f'{R}/{name}')
  print(name, oct(st.st_mode), st.st_uid, st.st_nlink)
"""


class OwnRegion(Case):
    def test_is_private_to_this_user_regardless_of_umask(self):
        for umask in (0o000, 0o022, 0o277, 0o777):
            with self.subTest(umask=oct(umask)):
                script = f"import os; os.umask({umask}); R = {self.job.ram_dir!r}\n" + STAT
                done = self.job.python(script)
                name = os.path.basename(self.job.region())
                self.assertEqual(done.stdout.split(),
                                 [name, "0o100600", str(os.geteuid()), "1"], done.stderr)

    def test_is_refused_with_other_rights_or_a_second_name(self):
        self.assert_well(self.job.read(CUBESHIM_RAM_KEEP="1"))
        region = self.job.region()
        for mode in (0o644, 0o660, 0o606, 0o610):
            with self.subTest(mode=oct(mode)):
                os.chmod(region, mode)
                self.assert_one_line(self.job.read(CUBESHIM_RAM_KEEP="1"), region, "refused")
        os.chmod(region, 0o600)
        os.link(region, self.job.region(name="other"))
        for name in ("security", "other"):
            self.assert_one_line(self.job.read(CUBESHIM_RAM_KEEP="1", CUBESHIM_NAME=name),
                                 "refused", "name")
        os.unlink(self.job.region(name="other"))
        self.assert_well(self.job.read(CUBESHIM_RAM_KEEP="1"))
        self.assertEqual(self.job.totals()["hits"]["ram"], 1)

    @as_root
    def test_is_not_readable_by_another_user(self):
        os.chmod(self.job.file, 0o600)
        self.assert_well(self.job.read(CUBESHIM_RAM_KEEP="1"))
        done = self.job.python(f"open({self.job.region()!r}, 'rb')", as_user(NOBODY),
                               LD_PRELOAD=None)
        self.assertIn(b"PermissionError", done.stderr)
        # With the same settings, this user has its own region, and receives the kernel's answer.
        done = self.job.read(as_user(NOBODY), CUBESHIM_RAM_KEEP="1", CUBESHIM_STATS="off")
        self.assertIn(b"PermissionError", done.stderr)
        self.assertTrue(os.path.exists(self.job.region(NOBODY)))
        self.assertEqual(os.stat(self.job.region(NOBODY)).st_uid, NOBODY)


@as_root
class Squatter(Case):
    """Another user has created a file under the name first. The library prints one line, reads
    bypass the cache, the victim's files are not touched, and no call waits."""
    def expect_plain(self, make, *words, victims=(0, USER)):
        for victim in victims:
            with self.subTest(victim=victim):
                region = self.job.region(victim)
                own = write(self.job.path(f"own-{victim}"), b"the victim's own", 0o600, victim)
                make(region, own)
                before = snapshot(own), snapshot(region)
                done = self.job.read(as_user(victim), CUBESHIM_STATS="off")
                self.assert_one_line(done, region, *words)
                self.assertEqual((snapshot(own), snapshot(region)), before)

    def test_with_a_file(self):
        for mode in (0o600, 0o666):
            self.expect_plain(lambda region, own, m=mode: write(region, b"x" * 20000, m, NOBODY))

    def test_with_a_link_to_a_file_of_the_victim(self):
        def make(region, own):
            os.symlink(own, region)
            os.lchown(region, NOBODY, NOBODY)

        self.expect_plain(make)

    def test_with_a_link_to_a_name_that_is_free(self):
        target = self.job.path("free")
        self.expect_plain(lambda region, own: os.symlink(target, region))
        self.assertFalse(os.path.lexists(target))

    def test_with_a_second_name_of_a_file_of_the_victim(self):
        def make(region, own):
            other = write(f"{self.job.ram_dir}/{os.path.basename(own)}", b"the victim's other file",
                          0o600,
                          os.stat(own).st_uid)
            os.link(other, region)

        self.expect_plain(make, "refused")

    def test_with_a_fifo(self):
        def make(region, own):
            os.mkfifo(region)
            os.chmod(region, 0o666)
            os.chown(region, NOBODY, NOBODY)

        self.expect_plain(make)

    def test_with_a_directory(self):
        def make(region, own):
            os.mkdir(region, 0o777)
            os.chown(region, NOBODY, NOBODY)

        self.expect_plain(make)

    def test_with_a_socket(self):
        def make(region, own):
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(region)
            os.chmod(region, 0o666)

        self.expect_plain(make)

    def test_with_a_file_that_is_leased(self):
        """Without O_NONBLOCK, an open of such a file waits up to 45 seconds for the holder of the
        lease."""
        held = []

        def make(region, own):
            write(region, CONTENT, 0o666, NOBODY)
            held.append(os.open(region, os.O_RDONLY))
            fcntl.fcntl(held[-1], fcntl.F_SETLEASE, fcntl.F_RDLCK)

        before = signal.signal(signal.SIGIO, signal.SIG_IGN)
        try:
            self.expect_plain(make, "temporarily unavailable")
        finally:
            for fd in held:
                os.close(fd)
            signal.signal(signal.SIGIO, before)

    def test_with_a_region_of_another_user(self):
        """The region is sound, but belongs to another user, so its bytes must not be served."""
        self.assert_well(self.job.read(as_user(NOBODY), CUBESHIM_RAM_KEEP="1",
                                       CUBESHIM_STATS="off"))
        os.rename(self.job.region(NOBODY), f"{self.job.ram_dir}/his")
        self.expect_plain(lambda region, own: self.put_region(region), "refused")

    def put_region(self, region):
        with open(f"{self.job.ram_dir}/his", "rb") as file:
            write(region, file.read(), 0o666, NOBODY)


class Removed(Case):
    def test_while_it_is_used_and_a_fifo_replaces_it(self):
        """Reserving the next segment and mapping need the name. They must not wait for a writer of
        the FIFO."""
        region = self.job.region()
        write(f"{self.job.data}/large", b"z" * 3_000_000)
        done = self.job.python(f"""
import mmap, os
data = open(F, 'rb').read()
os.unlink({region!r})
os.mkfifo({region!r})
large = open({self.job.data + '/large'!r}, 'rb')
with mmap.mmap(large.fileno(), 0, prot=mmap.PROT_READ) as m: assert m[:] == b'z' * 3_000_000
with open(F, 'rb') as f, mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as m: assert m[:] == data
print(len(data))
""")
        self.assert_well(done)


if __name__ == "__main__":
    unittest.main()
