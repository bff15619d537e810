"""Tests pods that the policy has changed (expected/). They keep their own fields, comply with the
restricted Pod Security Standard, and work in namespaces on a slow mount. check.py checks with the
API server's own code that the policy makes these pods.

    CUBESHIM_BUILD=BUILD test_pods.py"""

from __future__ import annotations

import copy
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from chart import CASES, MANIFEST, ROOT, case, expected, stamp
from pod import Node, Pod

sys.path.insert(0, str(ROOT))
from bench.harness.mount import SlowMount  # noqa: E402

BUILD = Path(os.environ["CUBESHIM_BUILD"])
LIBRARY = "/opt/cubeshim/lib/libcubeshim.so"
SMALL = 40
PATIENCE_S = 60
TRAIN = """#!/usr/bin/python3
import os, sys, zlib
total = 0
for name in sorted(os.listdir(sys.argv[1])):
    with open(os.path.join(sys.argv[1], name), "rb") as file:
        total = zlib.crc32(file.read(), total)
print(total, flush=True)
sys.stdin.read()
"""
# https://kubernetes.io/docs/concepts/security/pod-security-standards, restricted.
VOLUMES = {
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim",
    "projected", "secret"
}


def served() -> list[str]:
    return [
        name for name in CASES if expected(name) != case(name) and
        "cubeshim.io/status" not in expected(name)["metadata"].get("annotations", {})
    ]


def by_name(entries: list[dict]) -> dict[str, dict]:
    return {entry["name"]: entry for entry in entries}


def variables(container: dict) -> dict[str, str]:
    return {one["name"]: one.get("value", "") for one in container.get("env", [])}


class Manifest(unittest.TestCase):

    def test_is_made_from_the_chart_and_the_cases_of_today(self):
        self.assertTrue(MANIFEST.read_text().startswith(stamp()), "run check.py --write")


class ExpectedPods(unittest.TestCase):

    def each(self):
        return [(case(name), expected(name)) for name in served()]

    def test_most_cases_are_served(self):
        self.assertGreater(len(served()), 12)

    def test_keep_all_that_they_had(self):
        for before, after in self.each():
            self.assertEqual(before["metadata"], after["metadata"])
            rest = copy.deepcopy(after["spec"])
            for gone in ("volumes", "initContainers", "containers"):
                old, new = before["spec"].get(gone, []), rest.pop(gone)
                if gone != "containers":
                    self.assertEqual([one for one in new if one in old], old)
            self.assertEqual(rest, {
                key: value for key, value in before["spec"].items() if key in rest
            })
            for old, new in zip(before["spec"]["containers"],
                                after["spec"]["containers"],
                                strict=True):
                self.check_container(old, new)

    def check_container(self, old: dict, new: dict) -> None:
        rest = {key: value for key, value in new.items() if key not in ("env", "volumeMounts")}
        self.assertEqual(rest, {key: value for key, value in old.items() if key in rest})
        for mount in old.get("volumeMounts", []):
            self.assertIn(mount, new["volumeMounts"])
        for variable in old.get("env", []):
            if variable["name"] != "LD_PRELOAD":
                self.assertIn(variable, new["env"])

    def test_preload_the_library_after_their_own_libraries(self):
        for before, after in self.each():
            for old, new in zip(before["spec"]["containers"], after["spec"]["containers"]):
                if old == new:
                    continue
                named = by_name(old.get("env", [])).get("LD_PRELOAD", {})
                own = named.get("value", "")
                if "valueFrom" in named:
                    own = "$(LD_PRELOAD_OF_POD)"
                    self.assertEqual(
                        by_name(new["env"])["LD_PRELOAD_OF_POD"]["valueFrom"], named["valueFrom"])
                    self.assertLess(
                        list(variables(new)).index("LD_PRELOAD_OF_POD"),
                        list(variables(new)).index("LD_PRELOAD"))
                wanted = own if "libcubeshim" in own else f"{own}:{LIBRARY}".lstrip(":")
                self.assertEqual(variables(new)["LD_PRELOAD"], wanted)
                self.assertEqual([one["name"] for one in new["env"]].count("LD_PRELOAD"), 1)

    def test_have_each_mount_of_the_labelled_volume_as_a_prefix(self):
        for _, after in self.each():
            label = after["metadata"]["labels"]["cubeshim.io/prefix"]
            for container in after["spec"]["containers"]:
                at = [
                    mount["mountPath"]
                    for mount in container.get("volumeMounts", [])
                    if mount["name"] == label
                ]
                found = variables(container)
                says = {"CUBESHIM_PACKS", "CUBESHIM_BUCKETS"} & set(found)
                self.assertEqual(bool(at or says), "LD_PRELOAD" in found)
                if at:
                    self.assertTrue(found["CUBESHIM_PREFIXES"].startswith(":".join(at)))

    def test_keep_to_the_restricted_standard(self):
        for before, after in self.each():
            for volume in after["spec"]["volumes"]:
                if volume not in before["spec"].get("volumes", []):
                    self.assertEqual(set(volume) - {"name"} - VOLUMES, set())
            first, *_ = after["spec"]["initContainers"]
            security = first["securityContext"]
            self.assertEqual(first["name"], "cubeshim")
            self.assertIs(security["allowPrivilegeEscalation"], False)
            self.assertIs(security["runAsNonRoot"], True)
            self.assertNotEqual(security["runAsUser"], 0)
            self.assertEqual(security["capabilities"], {"drop": ["ALL"]})
            self.assertEqual(security["seccompProfile"], {"type": "RuntimeDefault"})


@unittest.skipIf(os.geteuid() != 0, "only root has namespaces")
class RunningPods(unittest.TestCase):

    def setUp(self):
        self.work = Path(tempfile.mkdtemp(prefix="pods-"))
        self.work.chmod(0o755)
        self.addCleanup(shutil.rmtree, self.work)
        data, image, disk = (self.work / name for name in ("data", "image", "disk"))
        for folder in (data, image / "cubeshim/lib", image / "usr/bin", disk):
            folder.mkdir(parents=True)
        for number in range(SMALL):
            (data / f"{number:02}").write_bytes(os.urandom(5000 + number))
        for file in data.iterdir():
            os.utime(file, (1_600_000_000, 1_600_000_000))
        shutil.copy(BUILD / "libcubeshim.so", image / "cubeshim/lib")
        (image / "train.py").write_text(TRAIN)
        (image / "usr/bin/python").symlink_to("/usr/bin/python3")
        # As the chart's DaemonSet makes it.
        disk.chmod(0o1777)
        # The mount has no page cache, which would hide reads.
        self.mount = SlowMount(BUILD / "lagfs", data, self.work, 100, direct=True)
        self.mount.__enter__()
        self.addCleanup(self.mount.__exit__)
        self.disk = disk
        self.node = Node(image, {"data": self.mount.path, "cubeshim": disk}, self.work)

    def begin(self, pod: Pod) -> tuple[subprocess.Popen, str]:
        """Starts the container and waits until it has read all files."""
        running = pod.start("train")
        self.addCleanup(running.communicate)
        self.addCleanup(running.kill)
        line = running.stdout.readline()
        self.assertTrue(line, "the container ended early")
        return running, line

    def end(self, running: subprocess.Popen) -> dict:
        _, err = running.communicate()
        self.assertEqual(running.returncode, 0, err)
        return json.loads(err.splitlines()[-1])

    def pod(self, name: str) -> Pod:
        manifest = expected(name)
        manifest["spec"]["containers"][0]["env"].append({
            "name": "CUBESHIM_STATS_FORMAT",
            "value": "json"
        })
        return Pod(self.node, manifest)

    def wait_until_written(self, pod: Pod) -> None:
        """Waits until the node's disk has all files that the pod has read."""
        region, = pod.volumes["cubeshim-memory"].glob("cubeshim-*-default")
        owner = str(region.stat().st_uid)
        command = [
            "setpriv", f"--reuid={owner}", f"--regid={owner}", "--clear-groups", BUILD / "cubeshim",
            "stats", "--json", "--ram-dir", region.parent
        ]
        deadline = time.monotonic() + PATIENCE_S
        disk = {"entries": 0, "unwritten": SMALL}
        while disk["entries"] < SMALL or disk["unwritten"]:
            self.assertLess(time.monotonic(), deadline, disk)
            job, = json.loads(subprocess.check_output(command))["jobs"]
            disk = job["report"]["disk"]

    def check_second(self, name: str) -> None:
        with self.pod(name) as first:
            running, text = self.begin(first)
            self.assertEqual(self.mount.on_data("read"), SMALL)
            self.wait_until_written(first)
            # A second pod runs beside the first, and another after it.
            for ended in (False, True):
                if ended:
                    self.assertEqual(self.end(running)["hits"]["disk"], 0)
                self.mount.reset()
                with self.pod(name) as second:
                    again, same = self.begin(second)
                    report = self.end(again)
                self.assertEqual(same, text)
                self.assertEqual(self.mount.on_data("read"), 0)
                self.assertEqual(self.mount.on_data("open"), 0)
                self.assertEqual(report["hits"]["disk"], SMALL, report)

    def test_the_second_of_a_node_reads_nothing_from_the_origin(self):
        self.check_second("plain")

    def test_the_second_reads_nothing_under_the_restricted_standard_either(self):
        self.check_second("restricted")

    def test_another_library_from_a_config_map_is_still_preloaded(self):
        self.node.settings["preload"] = "/usr/lib/x86_64-linux-gnu/libeatmydata.so"
        with self.pod("preload_from") as pod:
            running, _ = self.begin(pod)
            maps = self.maps_of(running.pid)
            self.assertEqual(self.end(running)["opens"], SMALL)
        self.assertIn("libeatmydata", maps)
        self.assertIn("libcubeshim", maps)

    def maps_of(self, pid: int) -> str:
        child, = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return Path(f"/proc/{child}/maps").read_text()


if __name__ == "__main__":
    unittest.main()
