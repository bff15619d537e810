"""Python alone: open().read(), in random order. It needs only Python, so a test runs it, too."""

import random

TITLE = "Python open().read()"
VENV = "plain"
PACKAGES = ()


def reader(data):
    paths = sorted(data.glob("*/*.jpg"))

    def read(epoch):
        for path in random.Random(epoch.number).sample(paths, len(paths)):
            epoch.add(path.read_bytes(), path.parent.name)

    return read
