# what: numpy: load, save, savez, memmap r r+ c w+, fromfile, tofile, loadtxt, genfromtxt, load with
#   mmap_mode, over handles and names
# needs: module numpy
# prepare
import os
import numpy as np

at = os.environ["DATA"] + "/np/"
os.mkdir(at)
a = np.arange(60_000, dtype=np.float32).reshape(200, 300)
np.save(at + "a.npy", a)
np.save(at + "small.npy", a[:3, :3])
np.save(at + "objects.npy", np.array([{"x": 1}, "two", 3.0], dtype=object), allow_pickle=True)
np.savez(at + "plain.npz", a=a, b=a.astype(np.int8))
np.savez_compressed(at + "packed.npz", a=a, b=a.astype(np.int8))
a.tofile(at + "a.raw")
np.savetxt(at + "a.txt", a[:20, :20])
np.save(at + "large.npy", np.arange(700_000, dtype=np.float32))
# run
import os, zlib
import numpy as np

at, out = os.environ["DATA"] + "/np/", os.environ["OUT"] + "/"
show = lambda name, a: print(name, a.dtype, a.shape, zlib.crc32(np.ascontiguousarray(a).tobytes()))
for name in ("a", "small", "large"):
    show(name, np.load(at + name + ".npy"))
    for mode in ("r", "r+", "c"):
        m = np.load(at + name + ".npy", mmap_mode=mode)
        show(mode, m)
        if mode == "c":
            m.flat[0] = 5
            show("copied on write", m)
        del m
print(list(np.load(at + "objects.npy", allow_pickle=True)))
try:
    np.load(at + "objects.npy")
except ValueError as e:
    print(e)
for name in ("plain.npz", "packed.npz"):
    with np.load(at + name) as z:
        for key in z.files:
            show(key, z[key])
    z = np.load(at + name, mmap_mode="r")
    show("a", z["a"])
with open(at + "a.npy", "rb") as f:
    show("handle", np.load(f))
    print(f.tell())
    f.seek(0)
    print(np.lib.format.read_magic(f), np.lib.format.read_array_header_1_0(f))
    show("rest", np.fromfile(f, np.float32, 100))
    print(f.tell())
    show("more", np.fromfile(f, np.float32, 100, offset=400))
show("fromfile", np.fromfile(at + "a.raw", np.float32))
show("offset", np.fromfile(at + "a.raw", np.float32, count=1000, offset=4000))
show("text", np.loadtxt(at + "a.txt"))
show("generous", np.genfromtxt(at + "a.txt"))
show("fromregex",
     np.fromregex(os.environ["DATA"] + "/text/table", r"(\d+) \w+ (\d+)", [("n", int), ("m", int)]))
for mode in ("r", "c", "r+"):
    m = np.memmap(at + "a.raw", np.float32, mode, offset=1200, shape=(100, 10))
    show("memmap " + mode, m)
    if mode != "r":
        m[3] = 7
        m.flush()
        show("changed", np.fromfile(at + "a.raw", np.float32))
    del m
m = np.memmap(at + "new.raw", np.int16, "w+", shape=(1000,))
m[:] = 3
m.flush()
show("new", np.fromfile(at + "new.raw", np.int16))
del m
np.save(at + "a.npy", np.zeros(7))
show("saved over", np.load(at + "a.npy"))
np.savez(at + "plain.npz", c=np.ones(9))
print(np.load(at + "plain.npz").files)
with open(at + "a.raw", "r+b") as f:
    f.seek(400)
    np.full(5, 1.5, np.float32).tofile(f)
show("in place", np.fromfile(at + "a.raw", np.float32))
for bad in ("absent.npy", "../text/one"):
    try:
        np.load(at + bad)
    except (OSError, ValueError) as e:
        print(type(e).__name__, e)
m = np.load(at + "large.npy", mmap_mode="r")
os.remove(at + "large.npy")
show("removed", m)
