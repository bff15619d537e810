# what: webdataset: tar shards with pictures, decoded, shuffled, in a DataLoader with 2 workers,
#   through pipe:cat, written with TarWriter
# needs: module webdataset; module torch
# heavy: yes
# prepare
import io, os, tarfile
import numpy as np
from PIL import Image

os.mkdir(os.environ["DATA"] + "/wds")
for shard in range(3):
    with tarfile.open(f"{os.environ['DATA']}/wds/{shard:03}.tar", "w") as t:
        for n in range(8):
            b = io.BytesIO()
            Image.fromarray(
                np.random.default_rng(shard * 8 + n).integers(0, 255, (40, 50, 3),
                                                              np.uint8)).save(b, "png")
            for kind, content in (("png", b.getvalue()), ("cls", b"%d" % n)):
                i = tarfile.TarInfo(f"{shard}{n}.{kind}")
                i.size = len(content)
                t.addfile(i, io.BytesIO(content))
# run
import glob, os, random, zlib
import numpy as np, torch
import webdataset as wds

torch.set_num_threads(1)
shards = sorted(glob.glob(os.environ["DATA"] + "/wds/*.tar"))
crc = lambda a: zlib.crc32(np.ascontiguousarray(a).tobytes())
data = lambda urls: wds.WebDataset(urls, shardshuffle=False).decode("rgb8").to_tuple(
    "__key__", "png", "cls")
print([(k, crc(p), c) for k, p, c in data(shards)])
print(sorted(k for k, _, _ in data(shards).shuffle(10, rng=random.Random(1))))
print(len(list(data(["pipe:cat " + s for s in shards]))),
      [crc(p) for _, p, _ in data("file:" + shards[0])])
loader = torch.utils.data.DataLoader(data(shards), batch_size=None, num_workers=2)
for epoch in range(2):
    print(epoch, sorted((k, crc(p), int(c)) for k, p, c in loader))
with wds.TarWriter(os.environ["DATA"] + "/wds/new.tar", mtime=0) as t:
    t.write({"__key__": "a", "txt": "text", "npy": np.arange(5)})
print([(s["txt"], s["npy"].sum())
       for s in wds.WebDataset(os.environ["DATA"] + "/wds/new.tar", shardshuffle=False).decode()])
