# what: imageio: imread, imiter, GIF and TIFF frames, write over
# needs: module imageio; module PIL
# prepare
import os, numpy as np, imageio.v3 as iio

os.mkdir(os.environ["DATA"] + "/io")
a = np.random.default_rng(1).integers(0, 255, (5, 40, 50, 3), np.uint8)
for kind in ("png", "jpg", "bmp", "ppm"):
    iio.imwrite(f"{os.environ['DATA']}/io/a.{kind}", a[0])
for kind in ("gif", "tiff"):
    iio.imwrite(f"{os.environ['DATA']}/io/a.{kind}", a)
# run
import os, zlib, numpy as np, imageio, imageio.v2, imageio.v3 as iio

at = os.environ["DATA"] + "/io/"
crc = lambda a: (a.shape, zlib.crc32(np.ascontiguousarray(a).tobytes()))
for kind in ("png", "jpg", "bmp", "ppm", "gif", "tiff"):
    print(kind, crc(np.asarray(iio.imread(f"{at}a.{kind}", index=0))),
          crc(np.asarray(imageio.v2.imread(f"{at}a.{kind}"))),
          iio.improps(f"{at}a.{kind}", index=0).shape)
    with open(f"{at}a.{kind}", "rb") as f:
        if kind == "tiff":
            continue
        print(crc(np.asarray(iio.imread(f, index=0))))
for kind in ("gif", "tiff"):
    print([crc(np.asarray(frame)) for frame in iio.imiter(f"{at}a.{kind}")])
iio.imwrite(at + "a.png", iio.imread(at + "a.png")[:10])
print(iio.imread(at + "a.png").shape)
for bad in ("absent.png", "../text/one"):
    try:
        iio.imread(at + bad)
    except OSError as e:
        print(type(e).__name__)
