"""Shared by the tests of files whose bytes arrive as a program reads them."""
import json
import os
import zlib

import support
from support import Host, content, whole

SIZE = 3_000_000
STEP = 100_000


def part(data, at, n):
    """Returns the host's answer after one read of these bytes."""
    piece = data[at:at + n]
    return f"ok {len(piece)} {len(piece)} {zlib.crc32(piece)}"


class FillCase(support.FaultCase):
    """Uses an origin of which no page is kept in memory, so that every read of it is counted."""

    options = ("--direct",)

    def setUp(self):
        super().setUp()
        self.origin = self.mount(*self.options)
        self.data, self.other = content(1, SIZE), content(2, SIZE)
        self.made = 0

    def new_file(self, data=None, name=None):
        self.made += 1
        name = name or f"f{self.made}"
        path = self.origin.put(name, self.data if data is None else data)
        os.utime(self.origin.source(name), (1, 1))
        return path

    def new_host(self, **more):
        return Host(self, self.settings(self.origin.root, RAM="64M", **more))

    def opened(self, host, path):
        answer = host.ask(f"open {path}")
        self.assertTrue(answer.startswith("fd "), answer)
        return int(answer.split()[1])

    def reset(self):
        (self.origin.root / ".lagfs/reset").write_text("1\n")

    def origin_bytes(self):
        """Returns the bytes read since the last reset."""
        return json.loads((self.origin.root / ".lagfs/counters.json").read_text())["read"]["bytes"]

    def read_steps(self, host, fd, at, end, data=None):
        while at < end:
            self.assertEqual(host.ask(f"next {fd} {STEP}"),
                             part(self.data if data is None else data, at, STEP), at)
            at += STEP

    def assert_kept(self, host, path, data=None):
        """Checks that an open now requests no bytes from the origin."""
        self.reset()
        self.assertEqual(host.ask(f"read {path}"), whole(self.data if data is None else data))
        self.assertEqual(self.origin_bytes(), 0)
