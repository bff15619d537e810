"""Coordinates a job of several ranks. The first rank reads the line, notifies the other ranks, and
adds up their sums."""

import sys

import torch.distributed as dist


def turns():
    while True:
        said = [sys.stdin.readline() if dist.get_rank() == 0 else ""]
        dist.broadcast_object_list(said)
        if not said[0]:
            return
        yield said[0]


def add_up(epoch):
    """Adds up the sums of all ranks."""
    sums = [None] * dist.get_world_size()
    dist.all_gather_object(sums, (epoch.samples, epoch.checksum))
    epoch.samples = epoch.checksum = 0
    for samples, checksum in sums:
        epoch.add_sums(samples, checksum)
