"""The region is corrupted, filled, removed, or belongs to another user. The program must read the
same bytes as without the library."""
import mmap
import os
import pathlib
import random
import socket
import subprocess

import region_file
import support
from support import Host, content, whole

PARTS = ("pins", "lanes", "segment table", "writers", "own writers", "flights", "unread bits",
         "recent misses", "listings", "listed directories", "chunks", "chunk buckets",
         "large paths", "index", "counters")
FILES = {
    "small": content(1, 1000), "page": content(2, 5000), "large": content(3, 100_000),
    "run": content(4, 3_000_000)
}


class RegionCase(support.FaultCase):
    def setUp(self):
        super().setUp()
        self.origin = self.temporary()
        for name, data in FILES.items():
            (self.origin / name).write_bytes(data)
            os.utime(self.origin / name, (10**9, 10**9))

    def host(self, **more):
        return Host(self, self.settings(self.origin, **more))

    def check(self, host, names=FILES, times=2):
        for _ in range(times):
            for name in names:
                self.assertEqual(host.ask(f"read {self.origin}/{name}"), whole(FILES[name]), name)

    def kept_region(self, **more):
        """Makes a sound region that a job has left."""
        host = self.host(RAM_KEEP=1, **more)
        self.check(host)
        host.end()
        self.assertTrue(os.path.exists(self.region))
        self.region_may_stay = True


class InItsPlace(RegionCase):
    """Another kind of file has the name of the region."""
    def refused(self, what):
        with self.subTest(what=what):
            before = os.lstat(self.region)
            host = self.host()
            self.check(host)
            self.assertEqual(host.ask(f"child {self.origin}/small"), whole(FILES["small"]))
            host.end_and_expect_complaint()
            after = os.lstat(self.region)
            self.assertEqual((before.st_ino, before.st_size, before.st_mode, before.st_mtime_ns),
                             (after.st_ino, after.st_size, after.st_mode, after.st_mtime_ns),
                             "it was left alone")
            self.tried()

    def tearDown(self):
        self.region_may_stay = True

    def test_other_kinds_of_file(self):
        target = self.temporary() / "target"
        target.write_bytes(b"important")
        makers = {
            "link": lambda: os.symlink(target, self.region),
            "dangling link": lambda: os.symlink("/nowhere", self.region),
            "hard link": lambda: self.in_shm_hard_link(),
            "fifo": lambda: os.mkfifo(self.region, 0o600),
            "directory": lambda: os.mkdir(self.region),
            "socket": lambda: socket.socket(socket.AF_UNIX).bind(self.region),
        }
        for what, make in makers.items():
            make()
            self.refused(what)
            os.rmdir(self.region) if os.path.isdir(
                self.region) and not os.path.islink(self.region) else os.unlink(self.region)
        self.assertEqual(target.read_bytes(), b"important")

    def in_shm_hard_link(self):
        other = self.region + "-other"
        with open(other, "wb") as file:
            file.write(b"important")
        os.chmod(other, 0o600)
        os.link(other, self.region)
        self.addCleanup(os.unlink, other)

    def test_invalid_region_files_are_refused(self):
        for what, data in {
                "empty": b"", "a byte": b"x", "zeros": bytes(1 << 20),
                "noise": random.Random(1).randbytes(1 << 20)
        }.items():
            with open(self.region, "wb") as file:
                file.write(data)
            os.chmod(self.region, 0o600)
            self.refused(what)

    def test_a_region_that_does_not_fit(self):
        def poke(at, data):
            def change():
                with open(self.region, "r+b") as file:
                    file.seek(at)
                    file.write(data)

            return change

        def resize(share):
            return lambda: os.truncate(self.region, int(os.path.getsize(self.region) * share))

        changes = {
            "mode 0644": lambda: os.chmod(self.region, 0o644),
            "mode 0660": lambda: os.chmod(self.region, 0o660),
            "mode 0700": lambda: os.chmod(self.region, 0o700),
            "the version before": poke(8, (1).to_bytes(4, "little")),
            "a version to come": poke(8, (1000).to_bytes(4,
                                                         "little")), "version 0": poke(8, bytes(4)),
            "a larger header": poke(12, (8192).to_bytes(4,
                                                        "little")), "no magic": poke(0, bytes(8)),
            "another segment size": poke(16, (4 << 20).to_bytes(4, "little")), "no segments": poke(
                20, bytes(4)), "many segments": poke(20, b"\xff" * 4), "no header": poke(
                    0, bytes(4096)), "header of noise": poke(16,
                                                             random.Random(2).randbytes(4000)),
            "cut to nothing": resize(0), "cut to a half": resize(0.5), "twice as long": resize(2),
        }
        if support.UID == 0:
            changes["of another user"] = lambda: os.chown(self.region, 65534, -1)
        for what, change in changes.items():
            self.kept_region()
            change()
            self.refused(what)
            os.unlink(self.region)

    def test_a_region_of_another_configuration(self):
        for what, settings in {
                "larger": {"RAM": "64M"}, "smaller": {"RAM": "8M"}, "a share": {"RAM": "1%"},
                "consistency": {"CONSISTENCY": "open"}, "mode": {"MODE": "real"},
                "another prefix": {"PREFIXES": str(self.temporary())},
                "smaller files": {"MAX_FILE": "2K"}
        }.items():
            with self.subTest(what=what):
                self.kept_region()
                host = self.host(RAM_KEEP=1, **settings)
                self.check(host)
                kept = (f"cubeshim: warn: CUBESHIM_RAM has no effect: {self.region} exists, and "
                        "keeps its size of 12 MiB until its last job ends or `cubeshim clear` "
                        "removes it\n")
                self.assertEqual(host.complaints(), kept if what in ("larger", "smaller") else "")
                host.end()
                if os.path.exists(self.region):
                    os.unlink(self.region)
                self.tried()


class Room(RegionCase):
    """The file system of the region runs out of room at different moments."""
    def check_in(self, directory, **more):
        self.region_directory = str(directory)
        first, second = self.host(**more), self.host(**more)
        for host in (first, second, first):
            self.check(host)
            self.assertEqual(host.ask(f"map {self.origin}/run"), whole(FILES["run"]))
            self.assertEqual(host.ask(f"child {self.origin}/large"), whole(FILES["large"]))
        self.tried()
        return first, second

    def fill(self, directory, leave=0):
        with open(directory / "filler", "ab") as file:
            room = os.statvfs(directory).f_bavail * os.statvfs(directory).f_bsize
            try:
                os.posix_fallocate(file.fileno(), file.seek(0, 2), max(room - leave, 4096))
            except OSError:
                pass

    def test_too_small_from_the_start(self):
        for size in ("64k", "1M", "7M", "8M", "9M"):
            with self.subTest(size=size):
                self.check_in(self.tmpfs(size))

    def test_filled_by_others_before(self):
        for leave in (0, 4096, 1 << 20, 5 << 20, 9 << 20, 10 << 20):
            with self.subTest(leave=leave):
                directory = self.tmpfs("24M")
                self.fill(directory, leave)
                self.check_in(directory)

    def test_filled_by_others_meanwhile(self):
        for files in range(len(FILES) + 1):
            with self.subTest(files=files):
                directory = self.tmpfs("24M")
                self.region_directory = str(directory)
                host = self.host()
                self.check(host, list(FILES)[:files], 1)
                self.fill(directory)
                self.check_in(directory)
                self.check(host)
                # There is room again, and the cache continues.
                (directory / "filler").unlink()
                self.check(host)

    def test_directory_that_cannot_be_written(self):
        readonly = self.tmpfs("24M")
        subprocess.run(["mount", "-o", "remount,ro", str(readonly)], check=True)
        plain_file = self.temporary() / "file"
        plain_file.write_bytes(b"x")
        for directory in (readonly, plain_file, self.temporary() / "absent", "/proc", "/dev/null"):
            with self.subTest(directory=str(directory)):
                self.check_in(directory)

    def test_limit_of_file_sizes(self):
        for limit in (0, 4096, 1 << 20, 20 << 20):
            with self.subTest(limit=limit):
                host = Host(self, self.settings(self.origin),
                            command=["prlimit", f"--fsize={limit}"])
                self.check(host)
                host.end()
                self.tried()


class InUse(RegionCase):
    """Another process of the user corrupts the region while programs use it."""
    def test_name_is_taken_away(self):
        first = self.host()
        self.check(first, ["small", "large"])
        fd = first.ask(f"open {self.origin}/large").split()[1]
        os.unlink(self.region)
        self.assertEqual(first.ask(f"fd {fd}"), whole(FILES["large"]))
        self.check(first)
        second = self.host()
        self.check(second)
        self.check(first)
        first.kill()
        third = self.host()
        self.check(third)
        second.end()
        self.assertTrue(os.path.exists(self.region), "it is the third's")
        self.check(third)
        self.tried(3)

    def test_another_region_takes_the_name(self):
        first = self.host()
        self.check(first, ["small"])
        os.rename(self.region, self.region + "-moved")
        # The next job can remove the region when the first job has ended.
        self.addCleanup(pathlib.Path(self.region + "-moved").unlink, missing_ok=True)
        second = self.host()
        self.check(second)
        self.check(first)
        first.end()
        self.assertTrue(os.path.exists(self.region), "the second's name is not the first's to take")
        self.check(second)
        self.tried()

    def test_mode_and_owner_change(self):
        for change in (lambda: os.chmod(self.region, 0), lambda: os.chmod(self.region, 0o777),
                       lambda: os.chown(self.region, 65534, -1)):
            with self.subTest():
                first = self.host()
                self.check(first, ["small"])
                change()
                self.check(first)
                self.check(self.host())
                self.region_may_stay = True
                self.tried()
                first.end()
                if os.path.exists(self.region):
                    os.unlink(self.region)

    def spoil(self, part, how, seed):
        """A host reads, the part is corrupted, and the host continues. It must survive, and must
        read the right bytes, except if the corrupted part holds these bytes."""
        with self.subTest(part=part, how=how, seed=seed):
            host = self.host()
            self.check(host)
            fd = host.ask(f"open {self.origin}/large").split()[1]
            layout = region_file.Layout(self.region)
            chance = random.Random(seed)
            with open(self.region, "r+b") as file, mmap.mmap(file.fileno(), 0) as region:
                if part == "record headers":
                    places = [
                        at + 4 + i for at in region_file.records(region, layout) for i in range(60)
                    ]
                else:
                    begin, size = layout.parts()[part]
                    places = list(range(begin, begin + size))
                if how == "bits":
                    for at in chance.sample(places, min(64, len(places))):
                        region[at] ^= 1 << chance.randrange(8)
                else:
                    for at in places:
                        region[at] = {"zeros": 0, "ones": 255, "noise": chance.randrange(256)}[how]
            names = list(FILES)
            answers = [
                host.ask(f"{command} {self.origin}/{name}")
                for command in ("read", "stat", "map", "stdio", "child")
                for name in names
            ]
            host.ask(f"fd {fd}")
            host.ask(f"kernel {fd}")
            for name in names:
                host.ask(f"replace {self.origin}/{name} 10 x")
                host.ask(f"remove {self.origin}/{name}")
            if part != "record headers":
                for i, answer in enumerate(answers):
                    self.assertEqual(
                        answer.split()[-1],
                        whole(FILES[names[i % len(names)]]).split()[-1] if
                        not answer.startswith("size") else str(len(FILES[names[i % len(names)]])))
            for name, data in FILES.items():
                (self.origin / name).write_bytes(data)
                os.utime(self.origin / name, (10**9, 10**9))
            other = self.host()
            other.ask(f"read {self.origin}/small")
            host.end()
            other.end()
            self.region_may_stay = True
            if os.path.exists(self.region):
                os.unlink(self.region)
            self.tried()

    def test_spoiled_tables(self):
        for part in PARTS:
            for how in ("zeros", "ones", "noise") if support.IS_LONG else ("noise",):
                self.spoil(part, how, 1)
            for seed in range(2 if support.IS_LONG else 1):
                self.spoil(part, "bits", seed)

    def test_spoiled_record_headers(self):
        for how in ("zeros", "ones", "noise"):
            self.spoil("record headers", how, 1)
        for seed in range(12 if support.IS_LONG else 4):
            self.spoil("record headers", "bits", seed)

    def test_kept_region_with_spoiled_tables(self):
        # The damage is done while no process is attached. The next job must find it.
        for part in PARTS:
            for seed in range(1):
                with self.subTest(part=part, seed=seed):
                    self.kept_region()
                    begin, size = region_file.Layout(self.region).parts()[part]
                    chance = random.Random(seed)
                    with open(self.region, "r+b") as file, mmap.mmap(file.fileno(), 0) as region:
                        for at in range(begin, begin + size):
                            region[at] = chance.randrange(256)
                    host = self.host(RAM_KEEP=1)
                    self.check(host)
                    host.end()
                    if os.path.exists(self.region):
                        os.unlink(self.region)
                    self.tried()


if __name__ == "__main__":
    support.main(__name__)
