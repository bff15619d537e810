"""A rank of a job for test_launchers.py: launchers_rank.py DATA OUT LAUNCHER. It reads its share of
two epochs, and waits in between.

It writes its rank and the files that it read to OUT/EPOCH-RANK.json. After the first batch of an
epoch, it waits for OUT/told-EPOCH, and after the first epoch for OUT/go."""
import hashlib
import json
import os
import sys
import time
from pathlib import Path

import cubeshim  # noqa: F401 - announces
from torch import distributed
from torch.utils.data import DataLoader, Dataset, DistributedSampler

DEADLINE_S = 240


class Files(Dataset):
    def __init__(self, folder):
        self.paths = sorted(
            str(path) for path in Path(folder).iterdir() if path.name.startswith("f"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with open(self.paths[index], "rb") as file:
            return index, hashlib.md5(file.read()).hexdigest()


def rank_and_world(launcher):
    """Returns the rank and the world size. A job of mpirun has neither torch's group nor RANK."""
    if launcher == "mpirun":
        return int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])
    distributed.init_process_group("gloo")
    return distributed.get_rank(), distributed.get_world_size()


def wait_for(path):
    until = time.monotonic() + DEADLINE_S
    while not path.exists():
        if time.monotonic() > until:
            sys.exit(f"{path} does not come")
        time.sleep(0.02)


def main():
    data, out, launcher = sys.argv[-3], Path(sys.argv[-2]), sys.argv[-1]
    rank, world = rank_and_world(launcher)
    files = Files(data)
    sampler = DistributedSampler(files, world, rank, shuffle=True)
    loader = DataLoader(files, batch_size=2, sampler=sampler, collate_fn=list)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        read = {}
        for number, batch in enumerate(loader):
            read.update((files.paths[index], digest) for index, digest in batch)
            if number == 0:
                # Waits, because otherwise such a short epoch would be over before it is announced.
                wait_for(out / f"told-{epoch}")
        part = out / f"part-{rank}"
        part.write_text(
            json.dumps(
                {"node": os.environ["CUBESHIM_NAME"], "rank": rank, "world": world, "read": read}))
        part.rename(out / f"{epoch}-{rank}.json")
        if epoch == 0:
            wait_for(out / "go")
    if launcher != "mpirun":
        distributed.barrier()


if __name__ == "__main__":
    main()
