"""Files whose bytes arrive as a program reads them: every way to read, files that change during the
read, and errors of the origin."""
import os
import pathlib
import signal

import support
from fill_case import SIZE, STEP, FillCase, part
from support import Host, whole


class Reads(FillCase):
    def test_open_asks_for_no_bytes_and_all_come_once(self):
        host, peer = self.new_host(), self.new_host()
        path = self.new_file()
        self.reset()
        fd = self.opened(host, path)
        self.assertEqual(self.origin_bytes(), 0)
        self.read_steps(host, fd, 0, SIZE)
        self.assertEqual(host.ask(f"next {fd} {STEP}"), part(self.data, SIZE, STEP))
        self.assertEqual(self.origin_bytes(), SIZE)
        # The record can be found while the file is still open.
        self.assert_kept(peer, path)
        self.assertEqual(host.ask(f"fd {fd}"), whole(self.data))
        self.assertEqual(host.ask(f"mapfd {fd}"), whole(self.data))
        self.assertEqual(self.origin_bytes(), 0)
        self.tried()

    def test_in_any_order_and_by_any_call(self):
        for command in ("read {}", "read {} small", "read {} pread", "read {} readv", "stdio {}",
                        "map {}", "child {}", "threads {} 4"):
            with self.subTest(command=command):
                host, path = self.new_host(), self.new_file()
                self.assertEqual(host.ask(command.format(path)), whole(self.data))
                self.assertEqual(host.ask(command.format(path)), whole(self.data))
                self.tried()

    def test_end_first(self):
        host, path = self.new_host(), self.new_file()
        self.reset()
        fd = self.opened(host, path)
        self.assertEqual(host.ask(f"at {fd} {SIZE - 50} 1000"), part(self.data, SIZE - 50, 1000))
        self.assertLessEqual(self.origin_bytes(), 128 << 10)
        self.assertEqual(host.ask(f"at {fd} 0 1000"), part(self.data, 0, 1000))
        self.assertEqual(host.ask(f"fd {fd} pread"), whole(self.data))
        self.assertEqual(self.origin_bytes(), SIZE)
        self.assert_kept(host, path)
        self.tried()

    def test_offset_of_dups_and_of_the_kernel(self):
        host, path = self.new_host(), self.new_file()
        fd = self.opened(host, path)
        self.assertEqual(host.ask(f"next {fd} 1000"), part(self.data, 0, 1000))
        twin = int(host.ask(f"dup {fd}").split()[1])
        self.assertEqual(host.ask(f"next {twin} 1000"), part(self.data, 1000, 1000))
        self.assertEqual(host.ask(f"offset {fd}"), "at 2000")
        info = pathlib.Path(f"/proc/{host.process.pid}/fdinfo/{fd}").read_text()
        self.assertIn("pos:\t2000\n", info)
        # A file that is closed in the middle of its fetch leaves no resource held.
        self.assertEqual(host.ask(f"close {fd}"), "closed")
        self.read_steps(host, twin, 2000, SIZE)
        self.assert_kept(host, path)
        self.tried()

    def test_fd_that_becomes_another_file(self):
        host, path, other = self.new_host(), self.new_file(), self.new_file(self.other)
        fd = self.opened(host, path)
        self.assertEqual(host.ask(f"next {fd} {STEP}"), part(self.data, 0, STEP))
        second = self.opened(host, other)
        self.assertEqual(host.ask(f"dup {second} {fd}"), f"fd {fd}")
        self.assertEqual(host.ask(f"fd {fd}"), whole(self.other))
        self.assertEqual(host.ask(f"read {path}"), whole(self.data))
        self.tried()

    def test_closed_while_another_thread_reads(self):
        """The read continues. It is unknown whether the fd belonged to the file until the end of
        the read, so its bytes are not used for other readers."""
        host, path, other = self.new_host(), self.new_file(), self.new_file(self.other)
        for keeps in (True, False):
            path = self.new_file()
            fd = self.opened(host, path)
            twin = int(host.ask(f"dup {fd}").split()[1]) if keeps else None
            self.reset()
            self.origin.script("hold read 1")
            self.assertEqual(host.ask(f"start {fd} 0 50000"), "started")
            self.assertGreater(self.origin.held(), 0)
            self.assertEqual(host.ask(f"close {fd}"), "closed")
            self.assertEqual(self.opened(host, other), fd)
            self.origin.script("go")
            self.assertEqual(host.ask("finish"), part(self.data, 0, 50_000))
            self.origin.script("clear")
            if keeps:
                self.assertEqual(host.ask(f"fd {twin}"), whole(self.data))
                self.assertGreater(self.origin_bytes(), SIZE, "the part was read again")
                self.assert_kept(host, path)
            self.assertEqual(host.ask(f"close {fd}"), "closed")
            self.assertEqual(host.ask(f"read {path}"), whole(self.data))
            self.tried()

    def test_closed_and_removed_while_another_thread_reads(self):
        """The read never returns bytes of the file that has the fd now. If the old file cannot be
        opened again, the read returns EBADF."""
        host, other = self.new_host(), self.new_file(self.other)
        path = self.new_file(name="removed")
        fd = self.opened(host, path)
        self.origin.script("hold read 1")
        self.assertEqual(host.ask(f"start {fd} 0 50000"), "started")
        self.assertGreater(self.origin.held(), 0)
        self.assertEqual(host.ask(f"close {fd}"), "closed")
        self.assertEqual(self.opened(host, other), fd)
        os.unlink(self.origin.source("removed"))
        self.origin.script("go")
        self.assertIn(host.ask("finish"), (part(self.data, 0, 50_000), "error EBADF read"))
        self.origin.script("clear")
        self.assertEqual(host.ask(f"fd {fd}"), whole(self.other))
        self.tried()

    def test_closed_at_once_or_after_the_header(self):
        host = self.new_host()
        for n in (0, 1000):
            path = self.new_file()
            self.reset()
            fd = self.opened(host, path)
            if n:
                self.assertEqual(host.ask(f"next {fd} {n}"), part(self.data, 0, n))
            self.assertEqual(host.ask(f"close {fd}"), "closed")
            self.assertLessEqual(self.origin_bytes(), 64 << 10)
            self.assertEqual(host.ask(f"read {path}"), whole(self.data))
            self.assert_kept(host, path)
            self.tried()

    def test_nearly_whole_in_several_opens(self):
        """The close completes the fetch of the file."""
        host, path = self.new_host(), self.new_file()
        for n in (1000, len(self.data) * 9 // 10):
            fd = self.opened(host, path)
            self.assertEqual(host.ask(f"next {fd} {n}"), part(self.data, 0, n))
            self.assertEqual(host.ask(f"close {fd}"), "closed")
        self.assert_kept(host, path)
        self.tried()

    def test_headers_take_no_room_for_good(self):
        """Reads forty times as many bytes as the region holds."""
        host = self.new_host()
        for round in range(2):
            for _ in range(40):
                first, second = self.opened(host,
                                            self.new_file()), self.opened(host, self.new_file())
                for fd in (first, second):
                    self.assertEqual(host.ask(f"next {fd} 1000"), part(self.data, 0, 1000))
                for fd in (second, first):
                    self.assertEqual(host.ask(f"close {fd}"), "closed")
        path = self.new_file()
        self.assertEqual(host.ask(f"read {path}"), whole(self.data))
        self.assert_kept(host, path)
        self.tried()

    def test_no_room(self):
        host = Host(self, self.settings(self.origin.root, RAM="8M"))
        for _ in range(8):
            path = self.new_file()
            self.assertEqual(host.ask(f"read {path}"), whole(self.data))
            self.assertEqual(host.ask(f"read {path} small"), whole(self.data))
            self.tried()

    def test_at_the_limit_of_fds(self):
        """A file that is being filled needs no fd besides the program's own."""
        host, path = self.new_host(), self.new_file()
        self.assertEqual(host.ask(f"read {self.new_file(b'small', 'small')}"), whole(b"small"))
        fd = self.opened(host, path)
        self.assertEqual(host.ask(f"limit {fd + 1}"), "limited")
        self.read_steps(host, fd, 0, SIZE // 2)
        self.assertEqual(host.ask(f"kernel {fd}"), "done")
        self.read_steps(host, fd, SIZE // 2, SIZE)
        self.assertEqual(host.ask(f"open {path}"), "error EMFILE open")
        self.tried()

    def test_handler_reads_the_same_file(self):
        host, path = self.new_host(), self.new_file()
        fd = self.opened(host, path)
        # The read from the origin is held until the signal has arrived.
        self.origin.script("hold read 2")
        host.send(f"handled {fd} 50")
        self.assertGreater(self.origin.held(), 0)
        self.assertIn(
            host.answer(),
            [f"{whole(self.data)} handler {part(self.data, 0, STEP)}", "error EINTR read"])
        self.origin.script("clear")
        self.assertEqual(host.ask(f"read {path}"), whole(self.data))
        self.tried()

    def test_left_by_a_jump(self):
        """The part that is in flight never arrives. The next open fetches the file again, and no
        reader waits for the first fetch."""
        host, peer, path = self.new_host(), self.new_host(), self.new_file()
        fd = self.opened(host, path)
        self.assertEqual(host.ask(f"next {fd} {STEP}"), part(self.data, 0, STEP))
        # Makes the first read after the script.
        self.origin.script("hold read 1")
        host.send(f"jumped {fd} 1000000")
        self.assertGreater(self.origin.held(), 0)
        host.signal(signal.SIGUSR1)
        self.assertEqual(host.answer(), "left")
        self.origin.script("clear")
        self.assertEqual(host.ask(f"read {path}"), whole(self.data))
        for reader in (host, peer):
            self.assert_kept(reader, path)
        self.assertEqual(host.ask(f"fd {fd}"), whole(self.data))
        self.assertEqual(host.ask(f"close {fd}"), "closed")
        self.assert_kept(host, path)
        self.tried()


class KernelsPages(Reads):
    """The kernel keeps pages of the file, and reads ahead by its own rules."""

    options = ()

    test_open_asks_for_no_bytes_and_all_come_once = None
    test_closed_at_once_or_after_the_header = None
    test_closed_while_another_thread_reads = None
    test_closed_and_removed_while_another_thread_reads = None
    test_end_first = None
    # No signal ends the wait for a page.
    test_handler_reads_the_same_file = None
    test_left_by_a_jump = None


class Changes(FillCase):
    """The file changes after a part of it was read. None of its bytes stay in the cache, and the
    reader continues as without the library."""
    def change(self, action, commands, expected, **more):
        host, path = self.new_host(**more), self.new_file(name="changing")
        fd = self.opened(host, path)
        self.read_steps(host, fd, 0, SIZE // 2)
        action(pathlib.Path(self.origin.source("changing")), path)
        for command, answer in zip(commands, expected):
            self.assertEqual(host.ask(command.format(fd=fd, path=path)), answer, command)
        self.tried()
        return host, path

    def test_rewritten_in_place(self):
        def rewrite(source, _):
            with open(source, "r+b") as file:
                file.write(self.other)

        # If the reader returns to the beginning, the bytes must be current. Otherwise, the reader
        # would get a mixture without noticing it.
        again = [
            "at {fd} 0 1000", f"at {{fd}} {SIZE - 1000} 1000", "at {fd} 0 1000", "read {path}",
            "read {path}"
        ]
        now = [
            part(self.other, 0, 1000),
            part(self.other, SIZE - 1000, 1000),
            part(self.other, 0, 1000)
        ]
        self.change(rewrite, again, [*now, whole(self.other), whole(self.other)])

    def test_rewritten_and_read_on(self):
        def rewrite(source, _):
            with open(source, "r+b") as file:
                file.write(self.other)

        host, path = self.change(rewrite, [], [])
        fd = 3
        at = SIZE // 2
        while at < SIZE:
            # Bytes that were read ahead can be old.
            self.assertIn(host.ask(f"next {fd} {STEP}"),
                          (part(self.other, at, STEP), part(self.data, at, STEP),
                           *(part(self.data[:cut] + self.other[cut:], at, STEP)
                             for cut in range(at // 65536 * 65536, at + STEP, 65536))))
            at += STEP
        self.assertEqual(host.ask(f"fd {fd}"), whole(self.other))
        self.assertEqual(self.new_host().ask(f"read {path}"), whole(self.other))

    def test_truncated(self):
        def cut(source, _):
            os.truncate(source, SIZE // 2 + 1000)

        short = self.data[:SIZE // 2 + 1000]
        self.change(
            cut, [f"at {{fd}} {SIZE // 2 + 500} {STEP}", "fd {fd}", "read {path}", "read {path}"],
            [part(short, SIZE // 2 + 500, STEP),
             whole(short),
             whole(short),
             whole(short)])

    def test_replaced(self):
        def replace(source, _):
            new = source.with_name("new")
            new.write_bytes(self.other)
            os.rename(new, source)

        self.change(replace, ["fd {fd}", "read {path}", "read {path}"],
                    [whole(self.data), whole(self.other),
                     whole(self.other)])

    def test_removed(self):
        self.change(lambda source, _: source.unlink(), ["fd {fd}", "read {path}"],
                    [whole(self.data), "error ENOENT open"])

    def test_written_through_the_library(self):
        writer = self.new_host()
        new = b"x" * 5000
        self.change(lambda _, path: self.assertEqual(writer.ask(f"write {path} 5000 x"), "written"),
                    ["at {fd} 0 1000", "fd {fd}", "read {path}", "read {path}"],
                    [part(new, 0, 1000), whole(new),
                     whole(new), whole(new)])

    def test_written_by_the_same_program(self):
        host, path = self.new_host(), self.new_file()
        fd = self.opened(host, path)
        self.read_steps(host, fd, 0, SIZE // 2)
        self.assertEqual(host.ask(f"write {path} 5000 y"), "written")
        self.assertEqual(host.ask(f"fd {fd}"), whole(b"y" * 5000))
        self.assertEqual(host.ask(f"read {path}"), whole(b"y" * 5000))
        self.tried()

    def test_changed_when_all_but_the_last_part_is_there(self):
        """The last read comes after the change, and the record is refused."""
        host, path = self.new_host(), self.new_file(name="late")
        fd = self.opened(host, path)
        # The reads leave gaps, so that nothing is read ahead.
        starts = range(0, SIZE, 500_000)
        for at in starts[:-1]:
            self.assertEqual(host.ask(f"at {fd} {at} 499990"), part(self.data, at, 499_990))
        with open(self.origin.source("late"), "r+b") as file:
            file.write(self.other[:1000])
        mixed = self.other[:1000] + self.data[1000:]
        self.assertEqual(host.ask(f"at {fd} {starts[-1]} 499990"),
                         part(self.data, starts[-1], 499_990))
        self.assertEqual(host.ask(f"fd {fd}"), whole(mixed))
        for reader in (host, self.new_host()):
            self.assertEqual(reader.ask(f"read {path}"), whole(mixed))
        self.tried()


class Errors(FillCase):
    def test_one_read_fails(self):
        for error in ("EIO", "ESTALE", "EINTR"):
            for nth in (1, 2, 3):
                with self.subTest(error=error, nth=nth):
                    host, path = self.new_host(), self.new_file()
                    fd = self.opened(host, path)
                    self.origin.script("clear", f"fail read {error} {nth}")
                    answer = host.ask(f"fd {fd}")
                    self.assertIn(answer, (whole(self.data), f"error {error} read"))
                    self.origin.script("clear")
                    self.assertEqual(host.ask(f"fd {fd}"), whole(self.data))
                    self.assertEqual(host.ask(f"read {path}"), whole(self.data))
                    self.tried()

    def test_all_reads_fail(self):
        native = self.native()
        for error in ("EIO", "ESTALE", "EINTR"):
            seen = []
            for reader in (native, self.new_host()):
                path = self.new_file()
                fd = self.opened(reader, path)
                self.read_steps(reader, fd, 0, 300_000)
                self.origin.script("clear", f"fail read {error} 1 1000000")
                seen.append(reader.ask(f"at {fd} 2000000 1000"))
                self.origin.script("clear")
            self.assertEqual(seen[0], seen[1])
            self.assertEqual(seen[0], f"error {error} read")
            self.tried()


if __name__ == "__main__":
    support.main(__name__)
