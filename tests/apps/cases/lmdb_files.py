# what: lmdb: read-only and writable environments, map of the file, readers in forked processes, a
#   writer beside readers, copies
# needs: module lmdb
# ignore: data/lm/* out/*
# prepare
import os, lmdb
for name in ("lm/a", "lm/small"):
    os.makedirs(f"{os.environ['DATA']}/{name}")
    with lmdb.open(f"{os.environ['DATA']}/{name}",
                   map_size=1 << 24) as env, env.begin(write=True) as t:
        for n in range(2000 if name == "lm/a" else 5):
            t.put(b"%06d" % n, bytes([n % 256]) * (n % 700))
# run
import os, zlib, lmdb

at = os.environ["DATA"] + "/lm/"


def show(env):
    with env.begin() as t, t.cursor() as c:
        sums = [zlib.crc32(k + v) for k, v in c]
        print(len(sums), sum(sums), len(t.get(b"000700", b"")), env.stat()["entries"], flush=True)


for name in ("a", "small"):
    for options in ({"readonly": True}, {"readonly": True, "lock": False},
                    {"readonly": True, "lock": False, "readahead": False}, {}):
        with lmdb.open(at + name, map_size=1 << 24, **options) as env:
            show(env)
with lmdb.open(at + "a", map_size=1 << 24) as env:
    with env.begin(write=True) as t:
        t.put(b"new", b"value" * 100)
        t.delete(b"000001")
    show(env)
    reader = env.begin()
    with env.begin(write=True) as t:
        t.put(b"later", b"x")
    print(reader.get(b"later"),
          env.begin().get(b"later"),
          open(at + "a/data.mdb", "rb").read(4096)[16:20].hex())
    reader.abort()
    os.mkdir(os.environ["OUT"] + "/copy")
    env.copy(os.environ["OUT"] + "/copy", compact=True)
show(lmdb.open(os.environ["OUT"] + "/copy", readonly=True))
pids = []
for n in range(3):
    pid = os.fork()
    if pid == 0:
        with lmdb.open(at + "a", readonly=True, lock=False) as env, env.begin() as t:
            os._exit(0 if t.stat()["entries"] == 2001 else 1)
    pids.append(pid)
print([os.waitpid(pid, 0)[1] for pid in pids])
for bad in ("absent", "../text/one"):
    try:
        lmdb.open(at + bad, readonly=True)
    except lmdb.Error as e:
        print(type(e).__name__)
