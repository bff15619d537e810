"""Measures cubeshim.ray.DataLoader on the slow mount.

    tests/prefetch/python/in_ray_venv.py bench/ray/loader.py --build build [--rounds N]
    (CUBESHIM_BUILD=build)

Compares it with torch's loader on one node, and measures it on two raylets, each with its own
cache. Prints the tables of doc/benchmarks/cluster.md. The ways are timed alternately. A figure is
the median, with the range of all rounds."""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
for folder in (ROOT, ROOT / "prefetch/python"):
    sys.path.insert(0, str(folder))
os.environ.update(PYTHONPATH=f"{ROOT}:{ROOT / 'prefetch/python'}", RAY_USAGE_STATS_ENABLED="0",
                  PYTHONDONTWRITEBYTECODE="1")

import cubeshim.ray  # noqa: E402
import ray  # noqa: E402
import torch  # noqa: E402
from bench.harness.machine import describe_machine  # noqa: E402
from bench.harness.mount import SlowMount  # noqa: E402
from ray.cluster_utils import Cluster  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402

FILES, SIZE, BATCH, WORKERS, LATENCY_US, EPOCHS = 400, 110_000, 40, 4, 300, 3
ADDRESSES = ("127.0.0.2", "127.0.0.3")


class Files(Dataset):
    """Each item is the bytes of a file or, with `decodes`, a picture from it."""
    def __init__(self, folder: Path, decodes: bool = False, repeats: int = 1):
        self.paths = [str(path) for path in sorted(folder.iterdir()) if path.is_file()] * repeats
        self.decodes = decodes

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.decodes:
            import numpy
            from PIL import Image
            picture = Image.open(self.paths[index]).convert("RGB").resize((224, 224))
            return torch.from_numpy(numpy.array(picture)).permute(2, 0, 1)
        with open(self.paths[index], "rb") as file:
            return torch.tensor(sum(file.read()[:16]))


def make_data(folder: Path, pictures: Path) -> None:
    import numpy
    from PIL import Image
    random = numpy.random.default_rng(1)
    for number in range(FILES):
        (folder / f"{number:04}").write_bytes(random.bytes(SIZE))
    for number in range(100):
        rough = random.integers(0, 255, (60, 80, 3), numpy.uint8)
        Image.fromarray(rough).resize((500, 375)).save(pictures / f"{number:04}.jpg", quality=95)


@contextmanager
def cluster(nodes: list[dict[str, str]], store: int) -> Iterator[None]:
    """Starts a raylet for each environment."""
    made = Cluster(
        initialize_head=True, head_node_args={
            "num_cpus": WORKERS, "object_store_memory": store, "include_dashboard": False,
            "node_ip_address": ADDRESSES[0], "env_vars": nodes[0]
        })
    try:
        for address, variables in zip(ADDRESSES[1:], nodes[1:]):
            made.add_node(num_cpus=WORKERS, object_store_memory=store, node_ip_address=address,
                          env_vars=variables)
        ray.init(address=made.address, _node_ip_address=ADDRESSES[0], log_to_driver=False,
                 logging_level="error")
        yield
    finally:
        ray.shutdown()
        made.shutdown()


def median(values: list[float], form: str = "{:,.0f}") -> str:
    low, high = form.format(min(values)), form.format(max(values))
    return f"{form.format(statistics.median(values))} ({low}-{high})"


def epoch(loader: DataLoader) -> float:
    """Returns the items per second."""
    begin, count = time.monotonic(), 0
    for batch in loader:
        count += len(batch)
    return count / (time.monotonic() - begin)


def one_node(pictures: Path, rounds: int) -> None:
    """Compares both loaders on one node. Both keep their workers and have run an epoch. The
    pictures are on the local disk, so any difference comes from the loaders."""
    data = Files(pictures, decodes=True, repeats=8)
    arguments = {"batch_size": 32, "num_workers": 2, "persistent_workers": True, "shuffle": True}
    torchs = DataLoader(data, **arguments)
    epoch(torchs)  # torch's loader starts its processes before Ray starts threads
    with cluster([{}], 400 << 20):
        loaders = {"torch": torchs, "cubeshim.ray": cubeshim.ray.DataLoader(data, **arguments)}
        found: dict[str, list[float]] = {name: [] for name in loaders}
        epoch(loaders["cubeshim.ray"])
        for number in range(rounds):
            for name in list(loaders)[::1 if number % 2 else -1]:
                found[name].append(epoch(loaders[name]))
        ratios = [ours / theirs for ours, theirs in zip(found["cubeshim.ray"], found["torch"])]
        print(
            f"| loader, 2 workers, one node, {len(data)} JPEG decoded to 3 x 224 x 224, "
            "batches of 32 | pictures/s |\n| --- | --- |"
        )
        for name, values in found.items():
            print(f"| {name} | {median(values)} |")
        print(f"| cubeshim.ray / torch, round by round | {median(ratios, '{:.2f}')} |\n",
              flush=True)
        del loaders, torchs


def two_nodes(build: Path, source: Path, work: Path, rounds: int) -> None:
    """Compares three kinds of run: without the library, with it and whole batches, and with it and
    split batches. Each round begins with empty caches."""
    ways: dict[str, Callable[[], dict[str, object]]] = {
        "without the library": dict, "whole batches (`split=False`)": lambda: {"split": False},
        "split by nodes": dict
    }
    speeds: dict[str, list[list[float]]] = {way: [[] for _ in range(EPOCHS)] for way in ways}
    opens: dict[str, list[list[float]]] = {way: [[] for _ in range(EPOCHS)] for way in ways}
    for number in range(rounds):
        for way in list(ways)[::1 if number % 2 else -1]:
            with SlowMount(
                    build / "lagfs", source, work,
                    LATENCY_US) as mount, tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
                nodes = []
                for node in range(len(ADDRESSES)):
                    nodes.append({"CUBESHIM_NAME": f"node{node}"})
                options = {}
                if way != "without the library":
                    options["runtime_env"] = cubeshim.ray.env(mount.path,
                                                              library=build / "libcubeshim.so",
                                                              ram="256M", ram_dir=memory)
                with cluster(nodes, 100 << 20):
                    data = Files(mount.path)
                    loader = cubeshim.ray.DataLoader(data, batch_size=BATCH, num_workers=WORKERS,
                                                     persistent_workers=True, shuffle=True,
                                                     ray_options=options, **ways[way]())
                    # Starts the actors. They open no files of the data set.
                    iterator = iter(
                        cubeshim.ray.DataLoader(list(range(WORKERS)), num_workers=WORKERS,
                                                ray_options=options))
                    loader._crews = iterator._lender
                    list(iterator)
                    iterator._crew.spread()
                    if len(iterator._crew.nodes()) != len(ADDRESSES):
                        raise SystemExit("a raylet has no worker")
                    for turn in range(EPOCHS):
                        mount.reset()
                        speeds[way][turn].append(epoch(loader))
                        opens[way][turn].append(mount.on_data("open"))
                    del loader, iterator
    print(f"| two raylets, {WORKERS} workers, {FILES} files of {SIZE // 1000} KB | " +
          " | ".join(f"epoch {turn + 1}: files/s | opens" for turn in range(EPOCHS)) + " |\n|" +
          " --- |" * (2 * EPOCHS + 1))
    for way in ways:
        print(f"| {way} | " +
              " | ".join(f"{median(speeds[way][turn])} | {statistics.median(opens[way][turn]):.0f}"
                         for turn in range(EPOCHS)) + " |")
    plain, split = speeds["without the library"], speeds["split by nodes"]
    for turn in range(EPOCHS):
        print(
            f"epoch {turn + 1}: split / without"
            f" {median([a / b for a, b in zip(split[turn], plain[turn])], '{:.1f}')}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=("one", "two"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cubeshim-ray-") as name:
        work = Path(name)
        source, pictures = work / "source", work / "pictures"
        source.mkdir()
        pictures.mkdir()
        make_data(source, pictures)
        print(describe_machine(" ".join(sys.argv), source).line() + "\n")
        if options.only != "two":
            one_node(pictures, options.rounds)
        if options.only != "one":
            two_nodes(options.build.resolve(), source, work, options.rounds)


if __name__ == "__main__":
    main()
