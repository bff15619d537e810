"""Like imagefolder.py, with the last release before torch 2."""

from imagefolder import reader  # noqa: F401

TITLE = "torchvision ImageFolder, DataLoader, 2 workers"
VENV = "torch1"
PACKAGES = ("torch", "torchvision")
