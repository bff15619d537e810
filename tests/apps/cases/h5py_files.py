# what: h5py: read, write, append, chunks and gzip, file objects, core driver, locking between two
#   processes, SWMR with a reader in another process
# needs: module h5py; module numpy
# ignore: data/h5/*.h5
# prepare
import os
import h5py
import numpy as np

at = os.environ["DATA"] + "/h5/"
os.mkdir(at)
with h5py.File(at + "a.h5", "w", track_order=True) as f:
    f["plain"] = np.arange(50_000)
    f.create_dataset("chunked", data=np.arange(60_000).reshape(200, 300), chunks=(20, 30),
                     compression="gzip")
    f.create_dataset("text", data=["one", "two"], dtype=h5py.string_dtype())
    f.attrs["what"] = "attribute"
    f["group/inner"] = np.float32(3)
with h5py.File(at + "large.h5", "w") as f:
    f["x"] = np.arange(400_000)
# run
import os, subprocess, sys, zlib
import h5py
import numpy as np

at = os.environ["DATA"] + "/h5/"
show = lambda name, a: print(name, a.dtype, a.shape, zlib.crc32(np.ascontiguousarray(a).tobytes()),
                             flush=True)
for driver in (None, "sec2", "stdio", "core"):
    with h5py.File(at + "a.h5", "r", driver=driver) as f:
        names = []
        f.visit(names.append)
        print(driver, names, f.attrs["what"], list(f["text"].asstr()))
        show("plain", f["plain"][:])
        show("part", f["chunked"][10:50, ::7])
        show("chosen", f["chunked"][[3, 5, 199], :])
with h5py.File(at + "large.h5", "r") as f:
    show("large", f["x"][::1000])
with open(at + "a.h5", "rb") as raw, h5py.File(raw, "r") as f:
    show("file object", f["chunked"][:])
with h5py.File(at + "a.h5", "r") as f, h5py.File(at + "a.h5", "r") as g:
    show("twice", f["plain"][:] + g["plain"][:])
print(h5py.is_hdf5(at + "a.h5"), h5py.is_hdf5(os.environ["DATA"] + "/text/one"))
other = ("import h5py, sys\ntry:\n with h5py.File(sys.argv[1], sys.argv[2]) as f: print('other', "
         "len(f))\nexcept OSError as e: print('other', str(e)[:60])")
ask = lambda name, mode: print(
    subprocess.run([sys.executable, "-c", other, at + name, mode], capture_output=True, text=True).
    stdout, end="", flush=True)
with h5py.File(at + "a.h5", "r") as f:
    ask("a.h5", "r")
    ask("a.h5", "r+")
with h5py.File(at + "a.h5", "r+") as f:
    ask("a.h5", "r")
    f["plain"][5:10] = -1
    f["more"] = np.ones(1000)
    del f["group"]
with h5py.File(at + "a.h5", "r") as f:
    print(sorted(f))
    show("changed", f["plain"][:])
with h5py.File(at + "a.h5", "a") as f:
    f["chunked"][0] = 0
    show("while writing", f["chunked"][:])
ask("a.h5", "r")
with h5py.File(at + "new.h5", "w", libver="latest") as f:
    d = f.create_dataset("grows", (0,), maxshape=(None,), chunks=(100,), dtype="i8")
    f.swmr_mode = True
    code = (
        "import h5py, sys\nwith h5py.File(sys.argv[1], 'r', libver='latest', swmr=True) as f:\n"
        " d = f['grows']\n"
        " for line in sys.stdin:\n  d.id.refresh(); print(d.shape[0], int(d[:].sum()), flush=True)")
    reader = subprocess.Popen([sys.executable, "-c", code, at + "new.h5"], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True)
    for n in range(1, 6):
        d.resize((n * 150,))
        d[:] = n
        d.flush()
        reader.stdin.write("go\n")
        reader.stdin.flush()
        print("swmr", reader.stdout.readline(), end="", flush=True)
    reader.communicate()
ask("new.h5", "r")
for bad in ("absent.h5", "../text/one", "../text/empty"):
    try:
        h5py.File(at + bad, "r")
    except OSError as e:
        print(type(e).__name__, str(e)[:50])
