"""Tests the package with the real server, which must receive exactly the paths that the loop will
read. ANNOUNCED is the path of the server's program."""
import os
import signal
import subprocess
import unittest

from support import *  # noqa: F403


class Real(Case):
    def start(self, count):
        path = self.dir / f"cubeshim-{os.geteuid()}-test.sock"
        server = subprocess.Popen([os.environ["ANNOUNCED"], path, "/data",
                                   str(count)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  text=True)
        self.addCleanup(self.end, server)
        self.assertEqual(server.stdout.readline(), "listening\n")
        return server

    def end(self, server):
        server.kill()
        server.wait()
        server.stdin.close()
        server.stdout.close()

    def given(self, server, count):
        rows = [server.stdout.readline().rstrip("\n").split(" ", 2) for _ in range(count)]
        self.assertEqual(len(rows[-1]), 3, rows[-1])
        return rows

    def test_the_order_of_a_loop(self):
        server = self.start(20_000)
        dataset = Files(20_000)
        iterator, first = begun(DataLoader(dataset, batch_size=64, shuffle=True, collate_fn=as_is))
        rows = self.given(server, 64)
        got = list(first)
        for batch in iterator:
            got += batch
            # Items that the loop has passed are not announced, so the loop waits here.
            rows += self.given(server, len(batch))
        self.assertEqual([path for _, _, path in rows], dataset.paths(got))
        self.assertEqual([int(sequence) for _, sequence, _ in rows], list(range(20_000)))
        self.assertEqual(len({reader for reader, _, _ in rows}), 1)

    def test_ranks_are_served_alike(self):
        server = self.start(4000)
        for rank in range(4):
            os.environ["RANK"] = str(rank)
            cubeshim.announce([f"/data/{rank}/{i}" for i in range(1000)])
        ranks = {}
        for reader, _, path in self.given(server, 4000):
            ranks.setdefault(reader, []).append(path)
        self.assertCountEqual(ranks.values(),
                              [[f"/data/{rank}/{i}" for i in range(1000)] for rank in range(4)])

    def test_next_leader_continues_the_order(self):
        first = self.start(5000)
        names = [f"/data/{i}" for i in range(60_000)]
        cubeshim.announce(names)
        heard = [path for _, _, path in self.given(first, 5000)]
        self.assertEqual(heard, names[:5000])
        first.send_signal(signal.SIGKILL)
        first.wait()
        second = self.start(30_000)
        heard = [path for _, _, path in self.given(second, 30_000)]
        start = names.index(heard[0])
        self.assertLessEqual(start, 5000, "something was left out")
        self.assertEqual(heard, names[start:start + 30_000])

    def test_a_slow_server_gets_all_in_the_end(self):
        server = self.start(100_000)
        names = [f"/data/{'x' * 80}/{i}" for i in range(100_000)]
        cubeshim.announce(names)
        self.assertEqual([path for _, _, path in self.given(server, 100_000)], names)


if __name__ == "__main__":
    unittest.main()
