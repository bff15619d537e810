"""torch's DataLoader with workers of each kind, with a list, and with its own order announced."""
import pathlib
import unittest

from support import Job

PACKAGE = pathlib.Path(__file__).parents[3] / "prefetch" / "python"
LOADER = """
import os, sys, zlib
if os.environ.get('ANNOUNCE'): import cubeshim
import torch
from torch.utils.data import DataLoader, Dataset
D, COUNT = sys.argv[1], int(sys.argv[2])

class Files(Dataset):
    def __init__(self): self.samples = [(f'{D}/f{n}', n) for n in range(COUNT)]
    def __len__(self): return COUNT
    def __getitem__(self, index):
        with open(self.samples[index][0], 'rb') as f: return index, zlib.crc32(f.read())

def main():
    torch.set_num_threads(1)
    for kind in ('fork', 'spawn'):
        loader = DataLoader(Files(), batch_size=8, shuffle=True,
                            generator=torch.Generator().manual_seed(5), num_workers=2,
                            persistent_workers=True, multiprocessing_context=kind)
        for epoch in range(2):
            batches = iter(loader)
            pairs = [next(batches)]
            # Waits until some files are prefetched. On a busy machine the workers would otherwise
            # have read all files before.
            sys.stdin.read()
            pairs += batches
            print(kind, epoch, [batch.tolist() for pair in pairs for batch in pair])

if __name__ == '__main__':
    main()
"""


class Loaders(Job):
    count = 300
    lagfs = ("--open-us=300", "--read-us=300", "--lookup-us=300")

    def setUp(self):
        super().setUp()
        (self.dir / "loader.py").write_text(LOADER)
        # At exit, CPython can warn of leaked semaphores, even without the library, because of a
        # race: its tracker might learn too late that they were removed.
        self.env |= {"PYTHONWARNINGS": "ignore::UserWarning:multiprocessing.resource_tracker"}
        self.command = ["/usr/bin/python3", self.dir / "loader.py", self.data, self.count]

    def check_prefetched(self):
        done = self.check_gated(self.command, fetched=10, misses=None)
        found = done.report["prefetch"]
        self.assertGreater(found["early"] + found["late"], 0, str(done))
        # If two flights collide, one file is fetched twice, and no process reads one of its
        # records.
        self.assertLessEqual(found["wasted"] + found["unread"], self.count // 100, str(done))
        self.assertLessEqual(done.report["origin"]["opens"], self.count * 1.03, "of four epochs")
        self.assertEqual(done.report["opens"], 4 * self.count, str(done))
        return done

    def test_beside_a_list(self):
        self.check_prefetched()

    def test_with_its_order_announced(self):
        if not PACKAGE.is_dir():
            self.fail(f"{PACKAGE} is missing")
        del self.settings["CUBESHIM_PREFETCH_LIST"]
        self.env |= {"ANNOUNCE": "1", "PYTHONPATH": str(PACKAGE)}
        self.check_prefetched()


if __name__ == "__main__":
    unittest.main()
