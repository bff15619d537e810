"""For tests of CUBESHIM_PACKS: a data set, its pack, and the directory at which programs see the
pack. CUBESHIM_COMMAND and CUBESHIM_LIBRARY name the build's files."""
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

COMMAND, LIBRARY = os.environ["CUBESHIM_COMMAND"], os.environ["CUBESHIM_LIBRARY"]


def make_pack(data, pack):
    subprocess.run([COMMAND, "pack", "-q", data, pack], check=True, stdout=subprocess.DEVNULL)


class PackCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.work = Path(os.path.realpath(folder.name))
        self.data, self.pack = self.work / "data", self.work / "set.cube"
        self.prefix = self.work / "mounted"
        self.write_data()
        make_pack(self.data, self.pack)

    def environment_of(self, name, ram="64M", **settings):
        """Returns the environment of a program that writes its report to the file `stats`."""
        return {
            "PATH": os.environ["PATH"], "LD_PRELOAD": LIBRARY,
            "CUBESHIM_NAME": f"{name}-{os.getpid()}", "CUBESHIM_RAM": ram,
            "CUBESHIM_PACKS": f"{self.prefix}={self.pack}", "CUBESHIM_STATS_FORMAT": "json",
            "CUBESHIM_STATS": str(self.work / "stats"), **settings
        }
