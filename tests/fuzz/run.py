#!/usr/bin/python3
"""Runs a fuzz target from its corpus, in a directory that is removed afterwards: for a set time, or
for a set number of inputs, so that a test tries the same inputs on every machine.

Prints how many inputs were tried. After a failure, prints the target's own report, the input in
base64, and how to run it again."""
import argparse
import base64
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target")
    parser.add_argument("--seconds", type=int, default=20, help="longest time")
    parser.add_argument("--inputs", type=int, default=-1,
                        help="most inputs; -1: as many as there is time for")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save", help="directory where new inputs of the corpus stay")
    options = parser.parse_args()
    name = os.path.basename(options.target).removeprefix("fuzz_")
    seeds = os.path.join(HERE, "corpus", name)
    dictionary = os.path.join(HERE, f"{name}.dict")
    with tempfile.TemporaryDirectory(prefix="cubeshim-fuzz-", dir="/dev/shm") as work:
        found = options.save or os.path.join(work, "found")
        os.makedirs(found, exist_ok=True)
        command = [
            options.target, f"-seed={options.seed}", f"-max_total_time={options.seconds}",
            f"-runs={options.inputs}", "-timeout=120", "-rss_limit_mb=1500", "-max_len=4200",
            "-detect_leaks=0", "-print_final_stats=1", f"-artifact_prefix={work}/"
        ]
        if os.path.exists(dictionary):
            command.append(f"-dict={dictionary}")
        environment = dict(os.environ, FUZZ_DIR=work,
                           ASAN_OPTIONS="abort_on_error=0:detect_leaks=0")
        began = time.monotonic()
        run = subprocess.run(command + [found, seeds], env=environment, stderr=subprocess.PIPE,
                             text=True, errors="replace")
        tried = re.search(r"number_of_executed_units: (\d+)", run.stderr)
        count = int(tried.group(1)) if tried else 0
        artifacts = [
            n for n in os.listdir(work) if re.match(r"(crash|timeout|oom|leak|slow-unit)-", n)
        ]
        failures = [n for n in artifacts if not n.startswith("slow-unit-")]
        print(
            f"{name}: {count} inputs in {time.monotonic() - began:.0f} s, {len(failures)} findings")
        if run.returncode == 0 and not failures and count > len(os.listdir(seeds)):
            return 0
        # Leaves out the progress lines.
        print("\n".join(
            line for line in run.stderr.splitlines() if not re.match(r"#\d|INFO:", line))[-6000:])
        for artifact in failures:
            with open(os.path.join(work, artifact), "rb") as file:
                data = file.read()
            kept = os.path.join(tempfile.gettempdir(), f"fuzz-{name}-{artifact}")
            shutil.copy(os.path.join(work, artifact), kept)
            print(f"input (base64): {base64.b64encode(data).decode()}")
            print(f"again: {options.target} {kept}")
        return 1


sys.exit(main())
