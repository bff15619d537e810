"""For tests of the command with a data set on a slow mount. The mount counts the operations that
reach it, and holds them on request."""
import subprocess
from pathlib import Path

from cli_case import COMMAND

LAGFS = Path(COMMAND).parent / "lagfs"


class SlowMount:
    def setUp(self):
        super().setUp()
        self.source, self.mount = self.data, self.data.parent / "mount"
        self.mount.mkdir()
        self.file.unlink()

    def mount_it(self, *options, latency_us=0):
        delays = [f"--{what}-us={latency_us}" for what in ("lookup", "open", "read", "getattr")]
        subprocess.run([
            LAGFS, *delays, *options, "--attr-timeout=0", "--entry-timeout=0", self.source,
            self.mount
        ], check=True)
        self.addCleanup(lambda: subprocess.run(["umount", "-l", self.mount], check=True))
        self.addCleanup(lambda: self.script("clear"))

    def script(self, *lines):
        with open(self.mount / ".lagfs/script", "wb", buffering=0) as file:
            file.write("\n".join(lines).encode())

    def wait_until_held(self):
        self.assertTrue((self.mount / ".lagfs/held").read_text())
