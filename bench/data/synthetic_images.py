"""Makes photo-like JPEGs of a wanted size.

The result of a benchmark of small-file reading depends on the sizes of its files, and a training
run needs pictures that can be decoded and learnt from. So every picture is drawn: gradients, soft
shapes and a texture that depend on its class, over noise with the spectrum of natural images. The
amount of noise is then varied until the JPEG has the wanted size. A picture depends only on (seed,
index) and not on other pictures, so the bytes do not depend on how the work is shared among
processes."""

from __future__ import annotations

import colorsys
import math
from dataclasses import dataclass
from functools import lru_cache

import cv2
import numpy as np

KIB = 1024


@dataclass(frozen=True)
class Bucket:
    """Files of more than `low` and at most `high` bytes, their share of a data set and their usual
    picture size."""

    low: int
    high: int
    share: float
    width: int
    height: int

    @property
    def label(self) -> str:
        return f"{self.high // KIB}K"

    def holds(self, size: int) -> bool:
        return self.low < size <= self.high


# The size distribution of ImageNet's training files. The smallest bucket starts at 1 KiB, because
# the tables of a JPEG alone have 600 bytes.
BUCKETS = (Bucket(1 * KIB, 2 * KIB, 0.01, 96, 72), Bucket(2 * KIB, 4 * KIB, 0.02, 128, 96),
           Bucket(4 * KIB, 8 * KIB, 0.04, 192, 144), Bucket(8 * KIB, 16 * KIB, 0.08, 256, 192),
           Bucket(16 * KIB, 32 * KIB, 0.13, 400,
                  300), Bucket(32 * KIB, 64 * KIB, 0.38, 500,
                               375), Bucket(64 * KIB, 128 * KIB, 0.33, 500,
                                            375), Bucket(128 * KIB, 256 * KIB, 0.01, 800, 600),
          )

NOISE_SIDE = 1024
NOISE_FIELDS = 4
SIZE_TOLERANCE = 0.06
MAX_ENCODES = 24
AMPLITUDES = (3.0, 70.0)  # less gives hardly any noise, more hardly any picture


def bucket_of(size: int) -> Bucket | None:
    return next((bucket for bucket in BUCKETS if bucket.holds(size)), None)


def buckets_for(count: int, seed: int) -> list[int]:
    """Returns the bucket number of each of `count` files. Shares are exact (largest remainder), and
    the seed determines the order."""
    wanted = [bucket.share * count for bucket in BUCKETS]
    counts = [math.floor(share) for share in wanted]
    by_remainder = sorted(range(len(wanted)), key=lambda i: (counts[i] - wanted[i], -wanted[i]))
    for i in by_remainder[:count - sum(counts)]:
        counts[i] += 1
    numbers = np.repeat(np.arange(len(BUCKETS)), counts)
    np.random.default_rng([seed, 0xB0C4E7]).shuffle(numbers)
    return numbers.tolist()


@lru_cache(maxsize=1)
def noise_fields(seed: int) -> list[np.ndarray]:
    """Returns colour noise with a 1/f spectrum, like photographs. Each process makes the noise only
    one time and then crops it for each picture."""
    rng = np.random.default_rng([seed, 0x4E015E])
    rows = np.fft.fftfreq(NOISE_SIDE)[:, None]
    columns = np.fft.rfftfreq(NOISE_SIDE)[None, :]
    falloff = 1.0 / np.maximum(np.hypot(rows, columns), 1.0 / NOISE_SIDE)
    grey = [_field(rng, falloff) for _ in range(NOISE_FIELDS)]
    colour = [_field(rng, falloff) for _ in range(3)]
    return [
        np.stack([0.9 * g + 0.35 * c for c in colour], axis=-1).astype(np.float32) for g in grey
    ]


def _field(rng: np.random.Generator, falloff: np.ndarray) -> np.ndarray:
    spectrum = np.fft.rfft2(rng.standard_normal((NOISE_SIDE, NOISE_SIDE))) * falloff
    field = np.fft.irfft2(spectrum, s=(NOISE_SIDE, NOISE_SIDE))
    field = field / field.std() + 0.35 * rng.standard_normal(field.shape)
    # Rounds the noise, so that the last bit of an FFT on another CPU does not affect the bytes of
    # the files.
    return np.round(field * 64.0) / 64.0


def _picture_shape(bucket: Bucket, rng: np.random.Generator) -> tuple[int, int]:
    """Returns (height, width): usually 4:3, sometimes 3:2; a third of the pictures are upright."""
    width, height = bucket.width, bucket.height
    if rng.random() < 0.3:
        height = width * 2 // 3
    return (width, height) if rng.random() < 0.33 else (height, width)


def _class_colours(label: int, classes: int,
                   rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Returns two BGR colours. The class determines the hue; the picture shifts the hue and
    determines the brightness."""
    hue = label / classes + rng.normal(0.0, 0.25 / classes)
    upper = colorsys.hsv_to_rgb(hue % 1.0, rng.uniform(0.35, 0.6), rng.uniform(0.6, 0.85))
    lower = colorsys.hsv_to_rgb((hue + 0.08) % 1.0, rng.uniform(0.4, 0.7), rng.uniform(0.3, 0.5))
    return np.array(upper[::-1], np.float32) * 255, np.array(lower[::-1], np.float32) * 255


def _scene(shape: tuple[int, int], label: int, classes: int,
           rng: np.random.Generator) -> np.ndarray:
    """Returns the smooth part of a picture: a gradient, some soft discs, and stripes whose
    direction depends on the class."""
    height, width = shape
    y = np.linspace(0, 1, height, dtype=np.float32)[:, None]
    x = np.linspace(0, 1, width, dtype=np.float32)[None, :]
    upper, lower = _class_colours(label, classes, rng)
    tilt = np.float32(rng.uniform(-0.4, 0.4))
    blend = np.clip(y + tilt * (x - 0.5), 0, 1)
    for _ in range(2 + label % 4):
        cx, cy = rng.uniform(0.1, 0.9, 2).astype(np.float32)
        radius, depth = np.float32(rng.uniform(0.08, 0.25)), np.float32(rng.uniform(-0.6, 0.6))
        dx, dy = np.exp(-(((x - cx) / radius)**2)), np.exp(-(((y - cy) / radius)**2))
        blend = blend + depth * (dy * dx)
    angle = math.pi * label / classes
    waves = 2 * math.pi * (6 + 3 * (label % 3))
    phase = rng.uniform(0, 2 * math.pi)
    stripes = np.sin((math.cos(angle) * x + math.sin(angle) * y) * np.float32(waves) +
                     np.float32(phase))
    scene = upper + blend[..., None] * (lower - upper)
    return scene + 10.0 * stripes[..., None]


def _noise(shape: tuple[int, int], seed: int, rng: np.random.Generator) -> np.ndarray:
    field = noise_fields(seed)[rng.integers(NOISE_FIELDS)]
    top, left = rng.integers(0, NOISE_SIDE - shape[0]), rng.integers(0, NOISE_SIDE - shape[1])
    return field[top:top + shape[0], left:left + shape[1]]


def _encode(scene: np.ndarray, noise: np.ndarray, amplitude: float, quality: int) -> bytes:
    picture = np.clip(scene + np.float32(amplitude) * noise, 0, 255).astype(np.uint8)
    done, data = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, quality])
    if not done:
        raise RuntimeError("cv2 could not encode a JPEG")
    return data.tobytes()


def _first_guess(target: int, shape: tuple[int, int]) -> tuple[int, float]:
    """Returns the JPEG quality and noise amplitude for about `target` bytes (fitted by hand to this
    noise and encoder)."""
    bits_per_pixel = 8 * (target - 620) / (shape[0] * shape[1])
    quality = int(np.clip(45 + 20 * bits_per_pixel, 45, 92))
    return quality, float(np.clip(7.0 * bits_per_pixel, 1.0, 50.0))


def make_jpeg(seed: int, index: int, label: int, classes: int, bucket: Bucket) -> bytes:
    """Returns picture number `index`: a JPEG whose size is in `bucket`, near a random target."""
    rng = np.random.default_rng([seed, index])
    target = int(bucket.low + rng.uniform(0.03, 0.97) * (bucket.high - bucket.low))
    shape = _picture_shape(bucket, rng)
    scene, noise = _scene(shape, label, classes, rng), _noise(shape, seed, rng)
    quality, amplitude = _first_guess(target, shape)
    known: list[tuple[float, int]] = []
    nearest = b""
    for _ in range(MAX_ENCODES):
        data = _encode(scene, noise, amplitude, quality)
        if bucket.holds(len(data)):
            nearest = min(nearest or data, data, key=lambda picture: abs(len(picture) - target))
            if abs(len(data) - target) <= SIZE_TOLERANCE * target:
                break
        known.append((amplitude, len(data)))
        amplitude = _next_amplitude(known, target)
        if not AMPLITUDES[0] <= amplitude <= AMPLITUDES[1]:  # change the quality instead
            quality = min(97, quality + 4) if amplitude > AMPLITUDES[1] else max(5, quality - 15)
            known, amplitude = [], float(np.clip(amplitude, 5.0, 45.0))
    if not nearest:
        raise RuntimeError(f"picture {index} of seed {seed}: no JPEG of about {target} bytes found")
    return nearest


def _next_amplitude(known: list[tuple[float, int]], target: int) -> float:
    """Makes one step of the search. It is a secant step, because the size is nearly linear in the
    amplitude, and stays inside the bracket."""
    amplitude, size = known[-1]
    below = max((k for k in known if k[1] <= target), default=None)
    above = min((k for k in known if k[1] > target), default=None)
    if below and above and above[0] > below[0]:
        share = (target - below[1]) / (above[1] - below[1])
        return below[0] + float(np.clip(share, 0.05, 0.95)) * (above[0] - below[0])
    return amplitude * float(np.clip(target / size, 0.3, 3.0))**1.4
