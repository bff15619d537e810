"""Runs a pod's containers from the pod's manifest, like a kubelet: in namespaces, with the pod's
own mounts, volumes, variables, user and root file system. Needs root.

A container's image is this machine's root file system, with the files of `Node.image` on top. The
volumes that pods claim are directories of the node."""

from __future__ import annotations

import re
import shlex
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

NOT_ROOT = ["--reuid=1000", "--regid=1000", "--clear-groups", "--inh-caps=-all", "--no-new-privs"]


@dataclass
class Node:
    """A machine that runs pods. `claims` has a directory for each claim that a pod may name."""

    image: Path
    claims: dict[str, Path]
    work: Path
    settings: dict[str, str] = field(default_factory=dict)  # of config maps and secrets


class Pod:
    """One pod, from its start to its end. The pod's own volumes end with the pod."""

    def __init__(self, node: Node, manifest: dict):
        self.node, self.spec = node, manifest["spec"]
        self._own = tempfile.TemporaryDirectory(prefix="pod-", dir=node.work)
        Path(self._own.name).chmod(0o755)
        self.volumes = {volume["name"]: self._source(volume) for volume in self.spec["volumes"]}

    def __enter__(self) -> Pod:
        for container in self.spec.get("initContainers", []):
            subprocess.run(self.command(container), check=True, capture_output=True)
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["umount", "--lazy", *self._memory()], check=True)
        self._own.cleanup()

    def start(self, name: str, **popen) -> subprocess.Popen:
        container = next(c for c in self.spec["containers"] if c["name"] == name)
        return subprocess.Popen(self.command(container),
                                stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE,
                                text=True,
                                **popen)

    def _memory(self) -> list[Path]:
        return [
            self.volumes[volume["name"]]
            for volume in self.spec["volumes"]
            if volume.get("emptyDir", {}).get("medium") == "Memory"
        ]

    def _source(self, volume: dict) -> Path:
        if claim := volume.get("persistentVolumeClaim"):
            return self.node.claims[claim["claimName"]]
        source = Path(self._own.name, volume["name"])
        source.mkdir()
        if volume["emptyDir"].get("medium") == "Memory":
            size = volume["emptyDir"]["sizeLimit"].rstrip("i")
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", source],
                           check=True)
        source.chmod(0o777)
        return source

    def environment(self, container: dict) -> dict[str, str]:
        """Returns the environment. As in the kubelet, a $(NAME) is replaced if an earlier variable
        has this name; otherwise it stays."""
        found: dict[str, str] = {}
        for variable in container.get("env", []):
            if "valueFrom" in variable:
                source, = variable["valueFrom"].values()
                found[variable["name"]] = self.node.settings[source["key"]]
            else:
                found[variable["name"]] = re.sub(r"\$\((\w+)\)",
                                                 lambda use: found.get(use[1], use[0]),
                                                 variable.get("value", ""))
        return found

    def command(self, container: dict) -> list[str]:
        """Returns the command that runs the container. It makes the container's root, mounts the
        volumes there, and executes the container's process."""
        layers = Path(tempfile.mkdtemp(prefix=f"{container['name']}-", dir=self._own.name))
        root, upper, scratch = (layers / name for name in ("root", "upper", "work"))
        security = container.get("securityContext", {})
        # The upper layer is a tmpfs, because overlayfs refuses layers that contain each other.
        steps = [["mount", "-t", "tmpfs", "none", layers], ["mkdir", root, upper, scratch],
                 ["cp", "-a", f"{self.node.image}/.", upper],
                 [
                     "mount", "-t", "overlay", "-o",
                     f"lowerdir=/,upperdir={upper},workdir={scratch}", "none", root
                 ], ["mount", "-t", "proc", "none", root / "proc"],
                 ["mount", "--rbind", "/dev", root / "dev"],
                 ["mount", "-t", "tmpfs", "-o", "size=64M", "none", root / "dev/shm"]]
        for mount in container.get("volumeMounts", []):
            at = root / mount["mountPath"].lstrip("/")
            steps += [["mkdir", "-p", at], ["mount", "--bind", self.volumes[mount["name"]], at]]
            if mount.get("readOnly"):
                steps.append(["mount", "-o", "remount,bind,ro", at])
        if security.get("readOnlyRootFilesystem"):
            steps.append(["mount", "-o", "remount,ro", root])
        variables = {"PATH": "/usr/bin:/bin", **self.environment(container)}
        user = NOT_ROOT if self._user(security) else []
        steps.append([
            "exec", "chroot", root, "setpriv", *user, "env", "-i",
            *(f"{name}={value}" for name, value in variables.items()), *container["command"]
        ])
        script = "; ".join(shlex.join(map(str, step)) for step in steps)
        return [
            "unshare", "--mount", "--ipc", "--pid", "--fork", "--kill-child", "--propagation",
            "private", "sh", "-ec", script
        ]

    def _user(self, security: dict) -> int:
        """Returns the user to run as. Every user other than root runs as 1000."""
        return security.get("runAsUser", self.spec.get("securityContext", {}).get("runAsUser", 0))
