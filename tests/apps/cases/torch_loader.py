# what: torch DataLoader, 2 workers, 2 or 3 epochs, persistent or not, PIL, cv2, numpy and h5py
#   items: checksum of each batch
# needs: module torch; module h5py; module cv2; module PIL
# variants: fork spawn forkserver
# heavy: yes
# prepare
import os
import cv2, h5py
import numpy as np

at = os.environ["DATA"] + "/set/"
os.mkdir(at)
for n in range(24):
    picture = np.random.default_rng(n).integers(0, 255, (40 + n, 50, 3), np.uint8)
    cv2.imwrite(f"{at}{n}.jpg", picture)
    np.save(f"{at}{n}.npy", picture)
with h5py.File(at + "all.h5", "w") as f:
    f["x"] = np.arange(24 * 1000).reshape(24, 1000)
# run
import os, zlib
import cv2, h5py
import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset

at = os.environ["DATA"] + "/set/"
crc = lambda a: zlib.crc32(np.ascontiguousarray(a).tobytes())


class Files(Dataset):
    def __init__(self):
        self.h5 = None
        self.open_before = open(at + "0.npy", "rb")
        self.open_before.read(10)

    def __getstate__(self):
        return {"h5": None, "open_before": None}

    def __len__(self):
        return 24

    def __getitem__(self, n):
        self.h5 = self.h5 or h5py.File(at + "all.h5", "r")
        with open(f"{at}{n}.jpg", "rb") as f:
            raw = crc(f.read())
        m = np.load(f"{at}{n}.npy", mmap_mode="r")
        return torch.tensor([
            n, raw,
            crc(np.asarray(Image.open(f"{at}{n}.jpg").convert("RGB"))),
            crc(cv2.imread(f"{at}{n}.jpg")),
            crc(np.load(f"{at}{n}.npy")),
            crc(m),
            int(self.h5["x"][n].sum())
        ])


class Stream(IterableDataset):
    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        for n in range(info.id, 24, info.num_workers):
            yield n, crc(np.fromfile(f"{at}{n}.jpg", np.uint8))


def main():
    torch.set_num_threads(1)
    kind = os.environ["VARIANT"]
    for persistent in (False, True):
        loader = DataLoader(Files(), 5, shuffle=True, num_workers=2, persistent_workers=persistent,
                            multiprocessing_context=kind,
                            generator=torch.Generator().manual_seed(1))
        for epoch in range(2 if kind != "fork" else 3):
            print(persistent, epoch, [crc(batch) for batch in loader], flush=True)
    loader = DataLoader(Stream(), 4, num_workers=2, multiprocessing_context=kind)
    print(sorted(zip(*[torch.cat(c).tolist() for c in zip(*loader)]))[:3])
    print(crc(next(iter(DataLoader(Files(), 24)))))
    print(len(Files().open_before.read()))


if __name__ == "__main__":
    main()
