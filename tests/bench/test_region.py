"""The suite `memory` has its own parser for the start of a region's file. The parser must find each
field where the library writes it."""

from __future__ import annotations

import os
import subprocess
import unittest

from support import BUILD, ScratchTest

from bench.calls.memory import read_layout
from bench.harness.shim import Shim, child_environment

LIBRARY = BUILD / "libcubeshim.so"


@unittest.skipUnless(LIBRARY.exists(), "no library in $CUBESHIM_BUILD or build/")
class Region(ScratchTest):
    def test_layout_is_read_as_it_is_written(self) -> None:
        (self.scratch / "file").write_bytes(b"x" * 5000)
        shim = Shim(LIBRARY, self.scratch, f"bench-test-{os.getpid()}", "64M",
                    more=(("CUBESHIM_RAM_KEEP", "1"),))
        self.addCleanup(shim.region.unlink, missing_ok=True)
        subprocess.run(["cat", self.scratch / "file"], env=child_environment(shim),
                       stdout=subprocess.DEVNULL, check=True)
        layout = read_layout(shim.region)
        self.assertEqual(layout.control_bytes + layout.capacity, shim.region.stat().st_size)
        self.assertLessEqual(shim.region.stat().st_size, 64 << 20)
        # No table of the index is smaller than the previous one.
        self.assertEqual(list(layout.bucket_counts), sorted(layout.bucket_counts))
        self.assertGreater(layout.bucket_counts[0], 0)


if __name__ == "__main__":
    unittest.main()
