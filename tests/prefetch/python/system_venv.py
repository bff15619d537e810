"""Makes a venv below the build directory, with the system's torch and packages from PyPI, if it
does not exist. in_NAME_venv.py runs a test in it.

If the packages cannot be installed, prints one line that says why, and ends with 77, which means a
skip for ctest."""
import fcntl
import os
import subprocess
import sys
from pathlib import Path

SKIPPED = 77


def skip(why):
    print(f"skipped: {why}", flush=True)
    sys.exit(SKIPPED)


def make(venv, requirements, title):
    """Takes a lock, because two tests can begin at the same time. A file marks a complete venv."""
    venv.mkdir(parents=True, exist_ok=True)
    with open(venv / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = venv / "done"
        if done.exists() and done.read_text() == requirements.read_text():
            return
        for command in (["/usr/bin/python3", "-m", "venv", "--system-site-packages", venv], [
                venv / "bin/python", "-m", "pip", "install", "-q", "--retries", "1", "-r",
                requirements
        ]):
            made = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True)
            if made.returncode:
                skip(
                    f"{title} cannot be installed: "
                    f"{(made.stdout.strip() or 'no output').splitlines()[-1]}"
                )
        done.write_text(requirements.read_text())


def run(name, title):
    """NAME.txt next to this file lists the packages. The test and its arguments are the arguments
    of this command."""
    if subprocess.run(["/usr/bin/python3", "-c", "import torch"], capture_output=True).returncode:
        skip("the system's Python has no torch")
    venv = Path(os.environ["CUBESHIM_BUILD"]) / f"{name}-venv"
    make(venv, Path(__file__).resolve().parent / f"{name}.txt", title)
    os.execv(venv / "bin/python", [str(venv / "bin/python"), *sys.argv[1:]])
