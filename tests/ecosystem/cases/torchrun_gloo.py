"""torchrun with two ranks over gloo, each with a DistributedSampler and one worker."""

import torch
import torch.distributed as dist
from imagefolder import add_batches, pictures_of
from ranks import add_up, turns  # noqa: F401
from torch.utils.data.distributed import DistributedSampler

TITLE = "torchrun, 2 ranks (gloo), DistributedSampler"
VENV = "torch2"
PACKAGES = ("torch", "torchvision")
LAUNCH = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")


def reader(data):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    pictures = pictures_of(data)
    sampler = DistributedSampler(pictures, shuffle=True)
    loader = torch.utils.data.DataLoader(pictures, batch_size=32, sampler=sampler, num_workers=1)

    def read(epoch):
        sampler.set_epoch(epoch.number)
        add_batches(epoch, loader)
        add_up(epoch)

    return read
