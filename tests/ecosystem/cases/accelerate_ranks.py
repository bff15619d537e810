"""accelerate shards the loader among two ranks. On CPUs, `accelerate launch` requires MPI, so
torchrun starts the ranks."""

import torch
from accelerate import Accelerator
from imagefolder import add_batches, pictures_of
from ranks import add_up, turns  # noqa: F401

TITLE = "accelerate prepare(DataLoader), 2 ranks (gloo)"
VENV = "torch2"
PACKAGES = ("accelerate", "torch")
LAUNCH = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")


def reader(data):
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    # 600 pictures are 2 x 10 batches of 30, so that no picture is read twice to fill the last
    # batch.
    loader = torch.utils.data.DataLoader(pictures_of(data), batch_size=30, shuffle=True,
                                         num_workers=1)
    loader = accelerator.prepare(loader)

    def read(epoch):
        add_batches(epoch, loader)
        add_up(epoch)

    return read
