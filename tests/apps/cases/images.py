# what: PIL and cv2: read, lazy load, partial (draft, thumbnail, tiff frames), EXIF, verify, write
#   beside and over, video through cv2
# needs: module PIL; module cv2; module numpy
# prepare
import os
import cv2
import numpy as np
from PIL import Image

at = os.environ["DATA"] + "/img/"
os.mkdir(at)
for n in range(6):
    a = np.add.outer(np.arange(120) * (n + 1), np.arange(160)).astype(np.uint8)
    rgb = np.stack([a, a.T[:120].repeat(2, 1)[:, :160], 255 - a], 2)
    for kind in ("jpg", "png", "bmp", "tiff", "webp", "ppm", "gif"):
        Image.fromarray(rgb).save(f"{at}{n}.{kind}")
Image.fromarray(rgb).save(at + "frames.tiff", save_all=True,
                          append_images=[Image.fromarray(rgb[::-1]),
                                         Image.fromarray(rgb[:, ::-1])])
Image.fromarray(np.random.default_rng(1).integers(0, 255, (1200, 1000, 3),
                                                  np.uint8)).save(at + "large.png")
w = cv2.VideoWriter(at + "v.avi", cv2.VideoWriter_fourcc(*"MJPG"), 10, (160, 120))
for n in range(12):
    w.write(np.roll(rgb, n * 5, 1))
w.release()
fs = cv2.FileStorage(at + "m.yml", cv2.FILE_STORAGE_WRITE)
fs.write("m", rgb[:4, :4, 0])
fs.release()
# run
import glob, os, zlib

os.environ["OPENCV_LOG_LEVEL"] = "SILENT"
import cv2
import numpy as np
from PIL import Image, ImageFile, UnidentifiedImageError

at, out = os.environ["DATA"] + "/img/", os.environ["OUT"] + "/"
crc = lambda a: zlib.crc32(np.ascontiguousarray(a).tobytes())
for path in sorted(glob.glob(at + "*.*")):
    name = os.path.basename(path)
    if name.endswith(("avi", "yml")):
        continue
    with Image.open(path) as image:
        print(name, image.format, image.size, image.mode, crc(np.asarray(image)),
              getattr(image, "n_frames", 1))
    for flag in (cv2.IMREAD_COLOR, cv2.IMREAD_GRAYSCALE, cv2.IMREAD_UNCHANGED,
                 cv2.IMREAD_REDUCED_COLOR_2):
        got = cv2.imread(path, flag)
        print(None if got is None else (got.shape, crc(got)))
    assert (cv2.imread(path) is None) == (cv2.imdecode(np.fromfile(path, np.uint8), 1) is None)
image = Image.open(at + "0.jpg")
image.draft("RGB", (40, 30))
image.thumbnail((20, 20))
print(image.size, crc(np.asarray(image)), dict(image.getexif()))
with open(at + "1.jpg", "rb") as f:
    print(crc(np.asarray(Image.open(f).convert("L").crop((10, 10, 50, 50)))), f.tell() > 0)
frames = Image.open(at + "frames.tiff")
for n in (2, 0, 1):
    frames.seek(n)
    print(n, crc(np.asarray(frames)))
Image.open(at + "2.png").verify()
pixels = Image.open(at + "3.bmp")
os.remove(at + "3.bmp")
print("lazily, after the removal", crc(np.asarray(pixels)))
print(
    Image.open(at + "4.png").resize((10, 10)).save(at + "4.png"),
    Image.open(at + "4.png").size,
    cv2.imread(at + "4.png").shape)
cv2.imwrite(at + "5.png", cv2.imread(at + "5.png")[:50])
print(
    Image.open(at + "5.png").size, cv2.imread(at + "absent.png"), cv2.imread(at + "../text/one"),
    cv2.haveImageReader(at + "0.jpg"), cv2.imcount(at + "frames.tiff"))
print([crc(page) for page in cv2.imreadmulti(at + "frames.tiff")[1]])
for bad in ("absent.png", "../text/one", "../text/empty"):
    try:
        Image.open(at + bad)
    except (OSError, UnidentifiedImageError) as e:
        print(type(e).__name__, str(e).replace(at, ""))
open(at + "cut.jpg", "wb").write(open(at + "0.jpg", "rb").read()[:-500])
try:
    Image.open(at + "cut.jpg").load()
except OSError as e:
    print(e)
ImageFile.LOAD_TRUNCATED_IMAGES = True
print(crc(np.asarray(Image.open(at + "cut.jpg"))))
for backend in (cv2.CAP_OPENCV_MJPEG, cv2.CAP_FFMPEG, cv2.CAP_ANY):
    video = cv2.VideoCapture(at + "v.avi", backend)
    sums = []
    while (got := video.read())[0]:
        sums.append(crc(got[1]))
    print(backend, len(sums), zlib.crc32(repr(sums).encode()), video.get(cv2.CAP_PROP_FRAME_COUNT))
storage = cv2.FileStorage(at + "m.yml", cv2.FILE_STORAGE_READ)
print(storage.getNode("m").mat().sum())
