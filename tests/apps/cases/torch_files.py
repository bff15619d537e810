# what: torch.load and torch.save (zip and old format, file objects, storages), from_file shared and
#   private, jit.load, torchvision.io, ImageFolder
# needs: module torch; module torchvision; module numpy
# heavy: yes
# prepare
import os
import torch, torchvision

at = os.environ["DATA"] + "/pt/"
os.makedirs(at + "folder/a")
os.makedirs(at + "folder/b")
state = {
    "w": torch.arange(30_000.0).reshape(100, 300), "b": torch.ones(5, dtype=torch.int8), "n": 3
}
torch.save(state, at + "new.pt")
torch.save(state, at + "old.pt", _use_new_zipfile_serialization=False)
torch.jit.save(torch.jit.script(torch.nn.Linear(30, 40)), at + "jit.pt")
state["w"].numpy().tofile(at + "raw")
for n in range(6):
    torchvision.io.write_jpeg(((state["w"].reshape(3, 100, 100) * (n + 1)) % 256).to(torch.uint8),
                              f"{at}folder/{'ab'[n % 2]}/{n}.jpg")
# run
import inspect, os, zlib
import numpy as np
import torch, torchvision

torch.set_num_threads(1)
at, out = os.environ["DATA"] + "/pt/", os.environ["OUT"] + "/"
crc = lambda t: zlib.crc32(np.ascontiguousarray(t.detach().numpy()).tobytes())
for name in ("new.pt", "old.pt"):
    got = torch.load(at + name)
    print(name, crc(got["w"]), crc(got["b"]), got["n"])
    with open(at + name, "rb") as f:
        got = torch.load(f, map_location="cpu")
        print(crc(got["w"]), f.tell())
    if "mmap" in inspect.signature(torch.load).parameters and name == "new.pt":
        print(crc(torch.load(at + name, mmap=True)["w"]))
got["w"][0] = 0
torch.save(got, at + "new.pt")
print("saved over", crc(torch.load(at + "new.pt")["w"]))
torch.save(got["w"], out + "w.pt")
model = torch.jit.load(at + "jit.pt")
print(sum(crc(p) for p in model.parameters()))
with open(at + "jit.pt", "rb") as f:
    print(sum(crc(p) for p in torch.jit.load(f).parameters()))
for shared in (False, True):
    t = torch.from_file(at + "raw", shared=shared, size=30_000)
    print("from_file", shared, crc(t))
    t[:10] = -1
    print(crc(t), zlib.crc32(open(at + "raw", "rb").read()))
print(crc(torch.frombuffer(bytearray(open(at + "raw", "rb").read()), dtype=torch.float32)))
for path, label in torchvision.datasets.ImageFolder(at + "folder").samples:
    print(label, crc(torchvision.io.read_file(path)), crc(torchvision.io.read_image(path)))
print(crc(torchvision.transforms.ToTensor()(torchvision.datasets.ImageFolder(at + "folder")[3][0])))
for bad in ("absent", "../text/one", "../text/empty"):
    for load in (torch.load, torch.jit.load, torchvision.io.read_image):
        try:
            load(at + bad)
        except Exception as e:
            print(type(e).__name__, str(e).splitlines()[0].replace(at, "")[:60])
