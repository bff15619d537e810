"""Shared by the tests of files in blocks. CUBESHIM_LIBRARY names the build's file."""
import os

LIBRARY = os.environ["CUBESHIM_LIBRARY"]


def environment(prefixes: str, **settings: str) -> dict:
    """Returns the environment of a job with its own cache, whose files above 1 MiB are served in
    blocks of 1 MiB."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("CUBESHIM_")}
    return clean | {
        "CUBESHIM_PREFIXES": prefixes, "CUBESHIM_NAME": f"large-{os.getpid()}",
        "CUBESHIM_RAM": "256M", "CUBESHIM_BLOCK": "1M", "CUBESHIM_MAX_FILE": "1M",
        "LD_PRELOAD": LIBRARY
    } | settings
