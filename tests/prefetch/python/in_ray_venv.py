"""Runs a test with the system's torch and PyPI's Ray, in a venv below the build directory that is made once.

    in_ray_venv.py TEST [ARGUMENT...]

Ends with 77, and one line that says why, where Ray cannot be installed: ctest calls that a skip.
"""
import fcntl
import os
import subprocess
import sys
from pathlib import Path

REQUIREMENTS = Path(__file__).resolve().parent / "ray.txt"
SKIPPED = 77


def skip(why):
    print(f"skipped: {why}", flush=True)
    sys.exit(SKIPPED)


def make(venv):
    """Two tests may begin at the same time. What is complete says so by a file."""
    venv.mkdir(parents=True, exist_ok=True)
    with open(venv / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = venv / "done"
        if done.exists() and done.read_text() == REQUIREMENTS.read_text():
            return
        for command in (["/usr/bin/python3", "-m", "venv", "--system-site-packages", venv],
                        [venv / "bin/python", "-m", "pip", "install", "-q", "--retries", "1", "-r", REQUIREMENTS]):
            made = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if made.returncode:
                skip(f"Ray cannot be installed: {(made.stdout.strip() or 'no output').splitlines()[-1]}")
        done.write_text(REQUIREMENTS.read_text())


def main():
    if subprocess.run(["/usr/bin/python3", "-c", "import torch"], capture_output=True).returncode:
        skip("the system's Python has no torch")
    venv = Path(os.environ["CUBESHIM_BUILD"]) / "ray-venv"
    make(venv)
    os.execv(venv / "bin/python", [str(venv / "bin/python"), *sys.argv[1:]])


if __name__ == "__main__":
    main()
