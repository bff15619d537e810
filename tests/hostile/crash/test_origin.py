"""The origin fails, returns false data or disappears. The program must get the right bytes, or the
same error as without the library."""
import json
import os
import subprocess
import time

import support
from support import Host, content, whole

ERRORS = ["EIO", "ESTALE", "EINTR", "EACCES", "ENOENT"]
OPERATIONS = ["lookup", "open", "getattr", "read"]
SIZE = 300_000


def step_apart(line):
    """Removes the step from EINTR: the open can end with EINTR instead of a later call, because a
    signal is delivered only one time."""
    return "error EINTR" if line.startswith("error EINTR") else line


class Requests(support.FaultCase):
    """The requests for a large file."""
    def reads(self, origin):
        return json.loads((origin.root / ".lagfs/counters.json").read_text())["read"]

    def test_all_parts_at_once(self):
        origin = self.mount()
        data = content(1, 500_000)
        path = origin.put("f", data)
        host = Host(self, self.settings(origin.root))
        asked = []

        def wait_for_all():
            deadline = time.monotonic() + 60
            while not asked or (asked[-1] < 4 and time.monotonic() < deadline):
                asked.append(self.reads(origin)["count"])

        answer, held = origin.while_held(host, f"read {path}", "hold read 1", wait_for_all)
        self.assertTrue(held)
        self.assertEqual(answer, whole(data))
        self.assertEqual(asked[-1], 4, "four parts of 128 KiB, while the first is not there yet")
        self.assertEqual(self.reads(origin)["count"], 4, "and none of them twice")

    def test_once_where_the_kernel_keeps_no_pages(self):
        origin = self.mount("--direct", "--max-read=131072")
        data = content(1, 500_000)
        path = origin.put("f", data)
        host = Host(self, self.settings(origin.root))
        self.assertEqual(host.ask(f"read {path}"), whole(data))
        self.assertEqual(self.reads(origin)["bytes"], len(data))


class Errors(support.FaultCase):
    def setUp(self):
        super().setUp()
        self.origin = self.mount("--direct")
        self.data = content(1, SIZE)
        self.files = 0

    def new_file(self):
        self.files += 1
        return self.origin.put(f"f{self.files}", self.data)

    def try_all(self, **more):
        """Each operation fails once, at its n-th time, or for good."""
        host, native = Host(self, self.settings(self.origin.root, **more)), self.native()
        for operation in OPERATIONS:
            for error in ERRORS:
                for times in ("1", "2", "3", "1 1000000"):
                    with self.subTest(operation=operation, error=error, times=times):
                        seen = []
                        for reader in (native, host):
                            paths = [self.new_file() for _ in range(2)]
                            self.origin.script("clear", f"fail {operation} {error} {times}")
                            seen.append([reader.ask(f"read {path}") for path in paths])
                            self.origin.script("clear")
                            seen[-1].append(reader.ask(f"read {paths[0]}"))
                        expected, got = seen
                        self.tried()
                        if "1000000" in times:
                            self.assertEqual([step_apart(line) for line in got],
                                             [step_apart(line) for line in expected])
                            continue
                        errors = {f"error {error} {step}" for step in ("open", "fstat", "read")}
                        for line in got[:2]:
                            self.assertTrue(line == whole(self.data) or line in errors,
                                            f"{line}; without us {expected}")
                        self.assertEqual(got[2], whole(self.data), "nothing of the failure is kept")

    def test_during_a_fetch(self):
        self.try_all()

    def test_during_a_fetch_in_mode_open(self):
        self.try_all(CONSISTENCY="open")

    def test_during_a_revalidation(self):
        host, native = Host(self, self.settings(self.origin.root,
                                                CONSISTENCY="open")), self.native()
        for operation in OPERATIONS:
            for error in ERRORS:
                with self.subTest(operation=operation, error=error):
                    path = self.new_file()
                    os.utime(self.origin.source(os.path.basename(path)), (1, 1))
                    self.assertEqual(host.ask(f"read {path}"), whole(self.data))
                    self.origin.script(f"fail {operation} {error} 1 1000000")
                    expected, got = (reader.ask(f"read {path}") for reader in (native, host))
                    self.origin.script("clear")
                    self.assertIn(step_apart(got), (step_apart(expected), whole(self.data)))
                    if operation in ("lookup",):
                        self.assertEqual(got, expected, "the file could not be looked at")
                    self.assertEqual(host.ask(f"read {path}"), whole(self.data))
                    self.tried()

    def test_by_every_way_of_reading(self):
        host, native = Host(self, self.settings(self.origin.root)), self.native()
        for command in ("read {} pread", "read {} readv", "read {} small", "stdio {}", "map {}",
                        "child {}", "stat {}"):
            for operation in OPERATIONS:
                with self.subTest(command=command, operation=operation):
                    path = self.new_file()
                    if operation == "read" and command.startswith("map"):
                        continue  # without the library, this is a SIGBUS
                    self.origin.script(f"fail {operation} EIO 1 1000000")
                    expected, got = (reader.ask(command.format(path)) for reader in (native, host))
                    self.origin.script("clear")
                    self.assertEqual(got, expected)
                    self.tried()


class Lies(support.FaultCase):
    """The origin returns false data about a file."""
    def compare(self, *lies, options=("--direct",), commands=("read {}", "stdio {}"), **more):
        origin = self.mount(*options)
        data = content(1, 50_000)
        host, native = Host(self, self.settings(origin.root, **more)), self.native()
        for number, lie in enumerate(lies):
            for command in commands:
                with self.subTest(lie=lie, command=command):
                    path = origin.put(f"f{number}", data)
                    origin.script("clear", lie)
                    expected = native.ask(command.format(path))
                    for time in ("first", "second"):
                        self.assertEqual(host.ask(command.format(path)), expected, time)
                    self.tried()
        origin.script("clear")

    def test_size(self):
        lies = [
            f"lie size {delta}" for delta in (1, 100, 4096, 1_000_000, 30_000_000, -1, -100,
                                              -49_999, -50_000)
        ]
        self.compare(*lies)
        self.compare(*lies, CONSISTENCY="open")

    def test_size_that_the_kernel_believes(self):
        # Only `read` is compared. stdio reads in several calls, and between these the kernel can
        # assume another size, even without the library.
        self.compare(*[f"lie size {delta}" for delta in (1, 5000, -1, -5000)], options=(),
                     commands=("read {}",))

    def test_size_near_the_largest_number(self):
        top = (1 << 63) - 1
        lies = [f"lie size {value - 50_000}" for value in (top, top - 1, 1 << 62, 1 << 48)]
        self.compare(*lies, commands=("read {}",))
        self.compare(*lies, commands=("read {}",), MAX_FILE="15T")

    def test_negative_size(self):
        self.compare("lie size -50001", f"lie size {-(1 << 62)}", commands=("read {}", "stat {}"))

    def test_times(self):
        century = 100 * 365 * 86400
        for consistency in ("immutable", "open", "ttl:1"):
            self.compare(f"lie times {century}", f"lie times {-century}", "lie times 61",
                         "lie times -61", CONSISTENCY=consistency)

    def test_inode_that_changes_with_each_stat(self):
        for consistency in ("immutable", "open"):
            self.compare("lie inode", CONSISTENCY=consistency,
                         commands=("read {}", "stdio {}", "stat {}", "map {}"))

    def test_short_reads(self):
        self.compare("lie size 0", options=("--direct", "--short-read=1"),
                     commands=("read {}", "read {} pread", "stdio {}"))

    def test_reads_of_nothing(self):
        # The file is shorter than the kernel was told, so every read beyond its end returns no
        # bytes.
        origin = self.mount("--direct")
        host, native = Host(self, self.settings(origin.root)), self.native()
        for size in (0, 1, 4096):
            path = origin.put("empty", content(1, size))
            origin.script(f"lie size {100_000 - size}")
            self.assertEqual(host.ask(f"read {path}"), native.ask(f"read {path}"))
            origin.script("clear")
            self.tried()


class Ends(support.FaultCase):
    """The origin disappears, or is replaced by another."""
    def setUp(self):
        super().setUp()
        self.origin = self.mount("--direct")
        self.old, self.new = content(1, 100_000), content(2, 100_000)
        for name in ("cached", "held", "mapped", "unread"):
            self.origin.put(name, self.old)
        self.host, self.yardstick = Host(self, self.settings(self.origin.root)), self.native()
        for name in ("cached", "held", "mapped"):
            self.assertEqual(self.host.ask(f"read {self.origin.path(name)}"), whole(self.old))
        self.fd = self.host.ask(f"open {self.origin.path('held')}").split()[1]
        self.assertEqual(self.host.ask(f"map {self.origin.path('mapped')}"), whole(self.old))

    def check_that_what_is_open_lives_on(self):
        self.assertEqual(self.host.ask(f"fd {self.fd}"), whole(self.old))
        self.assertEqual(self.host.ask("mapped"), whole(self.old))
        self.host.ask(f"kernel {self.fd}")
        self.assertEqual(self.host.ask(f"fd {self.fd}"), whole(self.old), "as a kernel file")
        self.assertEqual(self.host.ask(f"close {self.fd}"), "closed")

    def check_that_all_fail_alike(self):
        path = self.origin.path("unread")
        self.assertEqual(self.host.ask(f"read {path}"), self.yardstick.ask(f"read {path}"))
        self.assertEqual(self.host.ask(f"stat {path}"), self.yardstick.ask(f"stat {path}"))
        self.assertEqual(self.host.ask(f"read {self.origin.path('cached')}"), whole(self.old))
        self.check_that_what_is_open_lives_on()
        self.tried(6)

    def test_daemon_is_killed(self):
        self.origin.kill_daemon()
        self.check_that_all_fail_alike()
        self.assertEqual(self.host.ask(f"read {self.origin.path('unread')}").split()[1], "ENOTCONN")

    def test_lazy_unmount(self):
        self.origin.unmount("-l")
        self.check_that_all_fail_alike()

    def test_unmount(self):
        self.origin.unmount()
        self.check_that_all_fail_alike()

    def test_forced_unmount(self):
        self.origin.unmount("-f")
        self.check_that_all_fail_alike()

    def test_unmount_in_the_middle_of_a_fetch(self):
        for how in ("-l", "-f"):
            for rule in ("hold open", "hold read", "hold read 2"):
                with self.subTest(how=how, rule=rule):
                    origin = self.mount("--direct")
                    path = origin.put("file", self.old)
                    host = Host(self, self.settings(origin.root))
                    origin.script(rule)
                    host.send(f"read {path}")
                    if rule != "hold read 2":
                        self.assertEqual(origin.held(), 1)
                    subprocess.run(["umount", how, str(origin.root)], capture_output=True)
                    origin.kill_daemon()
                    answer = host.answer()
                    self.assertTrue(answer == whole(self.old) or answer.startswith("error "),
                                    answer)
                    host.end()
                    self.tried()

    def remount(self):
        self.origin.unmount("-l")
        self.origin.start()

    def test_remount_with_other_content(self):
        for name in ("cached", "held", "mapped", "unread"):
            self.origin.put(name, self.new)
        self.remount()
        self.assertEqual(self.host.ask(f"read {self.origin.path('unread')}"), whole(self.new))
        self.assertEqual(self.host.ask(f"read {self.origin.path('cached')}"), whole(self.old),
                         "immutable: not seen in this job")
        self.check_that_what_is_open_lives_on()
        fresh = Host(self, self.settings(self.origin.root, CONSISTENCY="open"))
        self.assertEqual(fresh.ask(f"read {self.origin.path('cached')}"), whole(self.new))
        self.tried(4)

    def test_remount_on_another_device(self):
        # The new mount has the same names, bytes and times, but other inodes of another device.
        other = self.tmpfs("4M")
        for name in ("cached", "held", "mapped", "unread"):
            (other / name).write_bytes(self.new)
            os.utime(other / name, ns=(0, self.origin.source(name).stat().st_mtime_ns))
        self.origin.unmount("-l")
        self.origin.source_root = other
        self.origin.start()
        fresh = Host(self, self.settings(self.origin.root, CONSISTENCY="open"))
        for name in ("cached", "held", "unread"):
            self.assertEqual(fresh.ask(f"read {self.origin.path(name)}"), whole(self.new))
        self.check_that_what_is_open_lives_on()
        self.tried(4)


class Kinds(support.FaultCase):
    def check(self, origin, **more):
        data = content(1, 60_000)
        host, native = Host(self, self.settings(origin.root, **more)), self.native()
        for command in ("read {}", "stdio {}", "map {}", "stat {}", "child {}"):
            expected = native.ask(command.format(origin.path("file")))
            self.assertTrue(expected.startswith(("ok", "size")), expected)
            for _ in range(2):
                self.assertEqual(host.ask(command.format(origin.path("file"))), expected)
            self.tried()
        for command in ("write {} 10 x", "replace {} 10 x", "remove {}"):
            self.assertEqual(host.ask(command.format(origin.path("file"))),
                             native.ask(command.format(origin.path("file"))))
            self.assertEqual(host.ask(f"read {origin.path('file')}"),
                             native.ask(f"read {origin.path('file')}"))
            self.tried()
        return data

    def test_read_only(self):
        origin = self.mount("-o", "ro")
        origin.put("file", content(1, 60_000))
        self.check(origin)

    def test_full_disk(self):
        disk = self.tmpfs("1M")
        (disk / "file").write_bytes(content(1, 60_000))
        subprocess.run(["dd", "if=/dev/zero", f"of={disk}/filler", "bs=4k"], capture_output=True)
        origin = self.mount(source=disk)
        host, native = Host(self, self.settings(origin.root)), self.native()
        self.assertEqual(host.ask(f"read {origin.path('file')}"), whole(content(1, 60_000)))
        for path in ("a", "b"):
            answers = [
                reader.ask(f"write {origin.path(path)} 100000 x") for reader in (native, host)
            ]
            self.assertEqual(answers[0], answers[1])
            self.assertTrue(answers[1].startswith("error ENOSPC"), answers[1])
            self.assertEqual(host.ask(f"read {origin.path(path)}"),
                             native.ask(f"read {origin.path(path)}"))
            self.tried()
        self.assertEqual(host.ask(f"read {origin.path('file')}"), whole(content(1, 60_000)))


if __name__ == "__main__":
    support.main(__name__)
