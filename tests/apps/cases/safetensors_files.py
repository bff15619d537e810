# what: safetensors (a Rust library over mmap): load_file, safe_open, slices, save_file over, torch
#   and numpy
# needs: module safetensors; module torch
# heavy: yes
# prepare
import os, torch
from safetensors.torch import save_file

os.mkdir(os.environ["DATA"] + "/st")
save_file({"w": torch.arange(30_000.0).reshape(100, 300), "b": torch.ones(7, dtype=torch.int8)},
          os.environ["DATA"] + "/st/a.safetensors")
save_file({"w": torch.arange(5.0)}, os.environ["DATA"] + "/st/small.safetensors", {"format": "pt"})
# run
import os, zlib, numpy as np, torch
from safetensors import SafetensorError, safe_open
import safetensors.numpy, safetensors.torch

at = os.environ["DATA"] + "/st/"
crc = lambda t: zlib.crc32(np.ascontiguousarray(np.asarray(t)).tobytes())
for name in ("a", "small"):
    path = at + name + ".safetensors"
    print({k: crc(v) for k, v in sorted(safetensors.torch.load_file(path).items())},
          {k: crc(v) for k, v in sorted(safetensors.numpy.load_file(path).items())})
    with safe_open(path, "pt") as f, safe_open(path, "np") as g:
        print(sorted(f.keys()), f.metadata(), crc(f.get_tensor("w")), crc(g.get_slice("w")[2:4]),
              g.get_slice("w").get_shape())
    print(crc(safetensors.torch.load(open(path, "rb").read())["w"]))
t = safetensors.torch.load_file(at + "a.safetensors")
t["w"][0] = -1
safetensors.torch.save_file(t, at + "new.safetensors")
os.replace(at + "new.safetensors", at + "a.safetensors")
print("saved over", crc(safetensors.torch.load_file(at + "a.safetensors")["w"]))
for bad in ("absent", "../text/one", "../text/empty"):
    try:
        safetensors.torch.load_file(at + bad)
    except (OSError, SafetensorError) as e:
        print(type(e).__name__)
