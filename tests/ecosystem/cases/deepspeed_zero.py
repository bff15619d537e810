"""DeepSpeed's own DataLoader (deepspeed_io) in two ranks on the CPU."""

import os

import torch
import torch.distributed as dist

os.environ["DS_ACCELERATOR"] = "cpu"
import deepspeed  # noqa: E402
from imagefolder import add_batches, pictures_of  # noqa: E402
from ranks import add_up, turns  # noqa: E402,F401

TITLE = "deepspeed initialize(training_data), 2 ranks on the CPU"
VENV = "torch2"
PACKAGES = ("deepspeed", "torch")
LAUNCH = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")


def reader(data):
    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo")
    model = torch.nn.Linear(1, 1)
    settings = {
        "train_micro_batch_size_per_gpu": 30, "optimizer": {"type": "SGD", "params": {"lr": 0.0}}
    }
    _, _, loader, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(),
                                           training_data=pictures_of(data), config=settings)
    assert dist.get_world_size() == 2

    def read(epoch):
        loader.data_sampler.set_epoch(epoch.number)
        add_batches(epoch, loader)
        add_up(epoch)

    return read
