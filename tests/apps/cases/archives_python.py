# what: Python's zipfile, tarfile, gzip, bz2, lzma, shutil, filecmp, mmap, fileinput, linecache,
#   configparser, csv, json, pickle, shelve, dbm, zipimport, importlib from the prefix
# version: /usr/bin/python3 --version
# ignore: data/ar/a.zip data/ar/shelf*
# prepare
import os, tarfile, zipfile, gzip, bz2, lzma, pickle, py_compile

at = os.environ["DATA"] + "/ar/"
os.mkdir(at)
os.chdir(os.environ["DATA"])
with zipfile.ZipFile(at + "a.zip", "w", zipfile.ZIP_DEFLATED) as z:
    for name in ("text/words", "text/one", "binary/4097"):
        z.write(name)
for kind in ("", "gz", "bz2", "xz"):
    with tarfile.open(f"{at}a.tar{kind}", f"w:{kind}") as t:
        t.add("text")
        t.add("tree")
gzip.open(at + "w.gz", "wb").write(open("text/words", "rb").read())
bz2.open(at + "w.bz2", "wb").write(open("text/words", "rb").read())
lzma.open(at + "w.xz", "wb").write(open("text/words", "rb").read())
pickle.dump(list(range(10_000)), open(at + "p.pickle", "wb"))
os.makedirs("package/inner")
open("package/__init__.py", "w").write("from . import inner, other\nNAME = 'package'\n")
open("package/other.py", "w").write("VALUE = 42\ndef fail():\n    raise ValueError('from other')\n")
open("package/inner/__init__.py", "w").write(
    "import importlib.resources\nDATA = importlib.resources.read_text(__package__, 'data.txt')\n")
open("package/inner/data.txt", "w").write("resource\n")
with zipfile.ZipFile(at + "code.zip", "w") as z:
    z.writestr("zipped.py", "WORD = 'from a zip'\n")
open(at + "c.ini", "w").write("[a]\nb = c\n")
open(at + "j.json", "w").write('{"k": [1, 2, 3]}')
# run
import bz2, configparser, csv, filecmp, fileinput, gzip, hashlib, json, linecache, lzma
import mmap, os, pickle, runpy, shelve, shutil, sys, tarfile, traceback, zipfile, zlib

data, out = os.environ["DATA"] + "/", os.environ["OUT"] + "/"
at = data + "ar/"
crc = lambda b: (len(b), zlib.crc32(b))
with zipfile.ZipFile(at + "a.zip") as z:
    print(z.testzip(), [(i.filename, i.CRC) for i in z.infolist()])
    with z.open("text/words") as one, z.open("binary/4097") as two:
        print(one.read(10), crc(two.read()), crc(one.read()))
    z.extractall(out + "zip")
with open(at + "a.zip", "rb") as f, zipfile.ZipFile(f) as z:
    print(z.read("text/one"))
with zipfile.ZipFile(at + "a.zip", "a") as z:
    z.writestr("added", "added")
print(
    zipfile.ZipFile(at + "a.zip").namelist(), zipfile.is_zipfile(at + "a.zip"),
    tarfile.is_tarfile(at + "a.tar"))
for kind in ("", "gz", "bz2", "xz"):
    with tarfile.open(f"{at}a.tar{kind}") as t:
        print(len(t.getnames()), crc(t.extractfile("text/words").read()),
              crc(t.extractfile("tree/link").read()))
        t.extractall(out + "tar" + kind)
    with tarfile.open(f"{at}a.tar{kind}", "r|*") as t:
        print(sum(m.size for m in t))
with tarfile.open(at + "a.tar", "a") as t:
    t.add(data + "binary/4097", "added")
print(tarfile.open(at + "a.tar").getnames()[-1])
for module, name in ((gzip, "w.gz"), (bz2, "w.bz2"), (lzma, "w.xz")):
    with module.open(at + name, "rt") as f:
        first = f.readline()
        f.seek(100)
        print(first, f.read(20), crc(module.open(at + name).read()))
for copy in (shutil.copy, shutil.copy2, shutil.copyfile):
    copy(data + "binary/65536", out + "copy")
    print(copy.__name__, filecmp.cmp(data + "binary/65536", out + "copy", shallow=False),
          oct(os.stat(out + "copy").st_mode))
shutil.copytree(data + "tree", out + "tree", symlinks=True)
print(
    filecmp.dircmp(data + "tree", out + "tree").diff_files,
    shutil.make_archive(out + "made", "zip", data + "text")[-8:])
os.remove(out + "made.zip")
for name in ("binary/65536", "binary/large", "text/one", "binary/4096"):
    with open(data + name, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as m:
        print(len(m), crc(m[:]), m.find(b"line"), m[-3:], m.size())
    with open(data + name, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_COPY) as m:
        m[0:1] = b"X"
        print(crc(m[:]))
with open(data + "binary/65536", "r+b") as f, mmap.mmap(f.fileno(), 0) as m:
    m[100:103] = b"abc"
    m.flush()
    print(crc(open(data + "binary/65536", "rb").read()))
with fileinput.input([data + "text/one", data + "text/no_newline"]) as f:
    print([(f.filelineno(), line) for line in f])
with fileinput.input(data + "text/one", inplace=True) as f:
    for line in f:
        print(line.upper(), end="")
print(
    open(data + "text/one").read(), linecache.getline(data + "text/words", 5),
    configparser.ConfigParser().read(at + "c.ini")[0][-5:])
print(json.load(open(at + "j.json")), sum(pickle.load(open(at + "p.pickle", "rb"))),
      sum(int(r[2]) for r in csv.reader(open(data + "text/table"), delimiter=" ")))
with shelve.open(at + "shelf") as s:
    s["a"] = [1, 2]
with shelve.open(at + "shelf", "r") as s:
    print(dict(s))
sys.path[:0] = [data, at + "code.zip"]
import package, zipped

print(package.NAME, package.other.VALUE, package.inner.DATA, zipped.WORD)
try:
    package.other.fail()
except ValueError:
    print(traceback.format_exc().replace(data, ""))
print(
    runpy.run_path(data + "package/other.py")["VALUE"],
    hashlib.file_digest(open(data + "text/long", "rb"), "sha256").hexdigest())
with open(data + "text/numbers", "r+") as f:
    print(f.readline(), f.read(10))
    f.seek(0, 2)
    f.write("appended\n")
    f.seek(3800)
    print(f.read())
for encoding in ("utf-8", "latin-1", "utf-16"):
    try:
        print(len(open(data + "binary/511", encoding=encoding).read()))
    except UnicodeError as e:
        print(e)
for f in os.scandir(data + "binary"):
    assert f.stat().st_size == os.stat(f.path).st_size == os.path.getsize(f.path)
with open(data + "text/words", "rb", buffering=0) as f:
    b = bytearray(100)
    print(f.readinto(b), crc(b), os.pread(f.fileno(), 10, 50), f.tell(),
          os.readv(f.fileno(), [bytearray(5), bytearray(6)]), f.tell(),
          os.fstat(f.fileno()).st_size)
