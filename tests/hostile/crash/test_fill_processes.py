"""Files whose bytes arrive as a program reads them, while other processes read, wait, die or are
created."""
import signal

import support
from fill_case import SIZE, STEP, FillCase, part
from support import whole


class Processes(FillCase):
    def test_killed_after_each_part(self):
        peer = self.new_host()
        for at in range(0, SIZE + 1, 500_000):
            with self.subTest(at=at):
                path = self.new_file()
                host = self.new_host()
                fd = self.opened(host, path)
                self.read_steps(host, fd, 0, at)
                host.kill()
                self.assertEqual(peer.ask(f"read {path}"), whole(self.data))
                self.assert_kept(peer, path)
                self.tried()

    def test_killed_while_the_origin_reads_and_others_wait(self):
        for nth in (1, 2, 3):
            with self.subTest(nth=nth):
                path = self.new_file()
                host, peer, second = self.new_host(), self.new_host(), self.new_host()
                self.assertEqual(peer.ask(f"read {self.new_file()}"), whole(self.data))
                self.origin.script(f"hold read {nth}")
                host.send(f"read {path}")
                self.assertGreater(self.origin.held(), 0)
                for reader in (peer, second):
                    reader.send(f"read {path}")
                host.kill()
                for reader in (peer, second):
                    self.assertEqual(reader.answer(), whole(self.data))
                self.origin.script("clear")
                self.assertEqual(peer.ask(f"read {path}"), whole(self.data))
                self.tried()

    def test_idle_reader_delays_no_other_reader(self):
        """The idle reader has the file open, but no longer reads."""
        host, peer, path = self.new_host(), self.new_host(), self.new_file()
        fd = self.opened(host, path)
        self.assertEqual(host.ask(f"next {fd} 1000"), part(self.data, 0, 1000))
        for _ in range(3):
            self.assertEqual(peer.ask(f"read {path}"), whole(self.data))
        self.read_steps(host, fd, 1000, SIZE)
        self.assert_kept(peer, path)
        self.tried()

    def test_stopped_reader_delays_no_other_reader(self):
        host, peer, path = self.new_host(), self.new_host(), self.new_file()
        fd = self.opened(host, path)
        self.assertEqual(host.ask(f"next {fd} 1000"), part(self.data, 0, 1000))
        host.stop()
        self.assertEqual(peer.ask(f"read {path}"), whole(self.data))
        host.signal(signal.SIGCONT)
        self.read_steps(host, fd, 1000, SIZE)
        self.tried()

    def test_waiter_is_answered_from_the_fill(self):
        """A waiter makes the reader fetch the rest at its next read. The waiter itself requests
        nothing from the origin."""
        host, peer, path = self.new_host(), self.new_host(), self.new_file()
        self.assertEqual(peer.ask(f"read {self.new_file()}"), whole(self.data))
        self.reset()
        self.origin.script("hold read 2")
        host.send(f"read {path}")
        self.assertGreater(self.origin.held(), 0)
        peer.send(f"read {path}")
        self.origin.script("go")
        for reader in (host, peer):
            self.assertEqual(reader.answer(), whole(self.data))
        self.origin.script("clear")
        self.assertIn(self.origin_bytes(), (SIZE, 2 * SIZE),
                      "twice, if the peer came late or was slow")
        self.tried()

    def test_open_twice_in_one_process(self):
        host, path = self.new_host(), self.new_file()
        first, second = self.opened(host, path), self.opened(host, path)
        self.read_steps(host, first, 0, SIZE // 2)
        self.read_steps(host, second, 0, SIZE)
        self.read_steps(host, first, SIZE // 2, SIZE)
        self.assert_kept(host, path)
        self.tried()

    def test_fork_exec_and_spawn(self):
        for command, answer in (
            ("forked {} 1000", f"{part(self.data, 1000, 1000)} then {part(self.data, 2000, 1000)}"),
            ("executed {} 1000", part(self.data, 1000, 1000))):
            with self.subTest(command=command):
                host, path = self.new_host(), self.new_file()
                fd = self.opened(host, path)
                self.assertEqual(host.ask(f"next {fd} 1000"), part(self.data, 0, 1000))
                self.assertEqual(host.ask(command.format(fd)), answer)
                self.assertEqual(host.ask(f"fd {fd}"), whole(self.data))
                self.assertEqual(host.ask(f"read {path}"), whole(self.data))
                self.tried()

    def test_close_on_exec_is_changed(self):
        """Sets and clears close-on-exec by fcntl and by ioctl, on the fd and on a dup. The last
        setting counts at the exec."""
        for how in ("", " ioctl"):
            for keeps in (True, False):
                with self.subTest(how=how, keeps=keeps):
                    native, host = self.native(), self.new_host()
                    seen = []
                    for reader in (native, host):
                        path = self.new_file()
                        fd = self.opened(reader, path)
                        twin = int(reader.ask(f"dup {fd}").split()[1])
                        self.assertEqual(reader.ask(f"next {fd} 1000"), part(self.data, 0, 1000))
                        said = [
                            reader.ask(f"setfd {number} {flags}{how}")
                            for number, flags in ((fd, 0), (twin, 1),
                                                  *(((fd, 1), (twin, 0)) if not keeps else ()))
                        ]
                        # The fill continues.
                        self.assertEqual(reader.ask(f"next {fd} 1000"), part(self.data, 1000, 1000))
                        self.assertEqual(reader.ask("become"), "became")
                        seen.append((said, reader.ask(f"offset {fd}"), reader.ask(f"offset {twin}"),
                                     reader.ask(f"next {fd if keeps else twin} 1000")))
                        self.assertEqual(seen[-1][3], part(self.data, 2000, 1000))
                    self.assertEqual(seen[0], seen[1])
                    self.assertEqual(host.ask(f"read {path}"), whole(self.data))
                    self.tried()

    def test_close_on_exec_costs_the_fill_nothing(self):
        host, path = self.new_host(), self.new_file()
        self.reset()
        fd = self.opened(host, path)
        self.read_steps(host, fd, 0, SIZE // 2)
        for flags in (0, 1, 0):
            self.assertIn(f" {flags}", host.ask(f"setfd {fd} {flags}"))
        self.read_steps(host, fd, SIZE // 2, SIZE)
        self.assertEqual(self.origin_bytes(), SIZE)
        self.assert_kept(host, path)
        self.tried()

    def test_child_by_a_fork_that_passes_us_by(self):
        """Such a child drops its parent's fills, which does not affect the parent."""
        host, peer, path = self.new_host(), self.new_host(), self.new_file()
        fd = self.opened(host, path)
        self.assertEqual(host.ask(f"next {fd} {STEP}"), part(self.data, 0, STEP))
        self.assertEqual(host.ask(f"rawforked {fd} {SIZE // 2} 1000"),
                         part(self.data, SIZE // 2, 1000))
        # The room still belongs to the parent, so no file that fills the region may use it.
        others = [self.new_file(self.other) for _ in range((64 << 20) // SIZE)]
        for other in others:
            self.assertEqual(host.ask(f"read {other}"), whole(self.other))
        self.read_steps(host, fd, STEP, SIZE)
        for other in others:
            self.assertEqual(peer.ask(f"read {other}"), whole(self.other))
        self.assert_kept(peer, path)
        self.assertEqual(host.ask(f"fd {fd}"), whole(self.data))
        self.tried()

    def test_exec_of_the_reader(self):
        """Another process takes over the flight of the reader."""
        host, peer, path = self.new_host(), self.new_host(), self.new_file()
        self.assertEqual(peer.ask(f"read {self.new_file()}"), whole(self.data))
        fd = self.opened(host, path)
        self.assertEqual(host.ask(f"next {fd} 1000"), part(self.data, 0, 1000))
        self.assertEqual(host.ask("become"), "became")
        self.assertEqual(host.ask(f"offset {fd}"), "at -1")
        self.assertEqual(peer.ask(f"read {path}"), whole(self.data))
        self.assert_kept(peer, path)
        self.assertEqual(host.ask(f"read {path}"), whole(self.data))
        self.tried()

    def test_map_in_the_middle(self):
        host, path = self.new_host(), self.new_file()
        fd = self.opened(host, path)
        self.assertEqual(host.ask(f"next {fd} 1000"), part(self.data, 0, 1000))
        self.reset()
        self.assertEqual(host.ask(f"mapfd {fd}"), whole(self.data))
        self.assertLessEqual(self.origin_bytes(), SIZE)
        self.assert_kept(host, path)
        self.tried()


if __name__ == "__main__":
    support.main(__name__)
