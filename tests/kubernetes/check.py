"""Checks the chart with the tools of its users: helm, the API server's own admission plugin
(admit/), and the schemas of Kubernetes.

    check.py --tools DIR [--write]      --write makes cubeshim.yaml and expected/ anew

The tools come from the Go module proxy and PyPI, and stay in DIR: 0.4 GB. Building them takes some
six minutes of CPU time and 2.5 GB. If they are not available, one line says why and the exit status
is 77, which means a skip for ctest."""

from __future__ import annotations

import argparse
import difflib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import yaml
from chart import CASES, CHART, HERE, MANIFEST, case, expected, expected_file, stamp

HELM = "helm.sh/helm/v4/cmd/helm@v4.2.1"
SCHEMAS = "kubernetes-validate==1.37.0"
SKIPPED = 77
# Values other than the defaults, as arguments of helm.
VARIANTS = {
    "v1beta1": ["--set", "policy=v1beta1"],
    "disk of the pod": ["--set", "disk.kind=pod"],
    "no disk": ["--set", "disk.kind=none,runAsUser=null"],
    "settings": ["--set", "env.CUBESHIM_METADATA_TTL=5,namespaces={a,b}"]
}
REFUSED = ("policy=other", "memory=8G", "disk.size=100Gi", "disk.kind=other", "runAsUser=0",
           "env.OTHER=1", "namespaces=null", "unknown=1")


class Fault(Exception):
    pass


def skip(why: str) -> None:
    print(f"skipped: {why}", flush=True)
    sys.exit(SKIPPED)


class Tools:

    def __init__(self, where: Path):
        self._bin = where / "bin"
        self.helm, self.admit = self._bin / "helm", self._bin / "admit"
        self.validate = where / "venv/bin/kubernetes-validate"
        self._go = {
            "GOBIN": self._bin,
            "GOMODCACHE": where / "modules",
            "GOCACHE": where / "cache",
            "GOFLAGS": "-buildvcs=false -modcacherw"
        }
        if not shutil.which("go"):
            skip("go is not in PATH")
        if not self.helm.exists():
            self._run(["go", "install", HELM], where)
        source, copy = HERE / "admit", where / "admit"
        if not self.admit.exists() or (copy / "main.go").read_text() != (source /
                                                                         "main.go").read_text():
            self.admit.unlink(missing_ok=True)
            shutil.copytree(source, copy, dirs_exist_ok=True)
            self._run(["go", "mod", "tidy"], copy)
            # By now, all modules have been downloaded, so a failure is a fault of main.go.
            subprocess.run(["go", "build", "-o", self.admit, "."],
                           cwd=copy,
                           env=self._environment(),
                           check=True)
        for made in ("modules", "cache"):
            shutil.rmtree(where / made, ignore_errors=True)
        if not self.validate.exists():
            self._run([sys.executable, "-m", "venv", where / "venv"], where)
            self._run([where / "venv/bin/pip", "install", "-q", SCHEMAS], where)

    def _environment(self) -> dict[str, str]:
        return os.environ | {name: str(value) for name, value in self._go.items()}

    def _run(self, command: list[str | Path], folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(command,
                              cwd=folder,
                              env=self._environment(),
                              capture_output=True,
                              text=True)
        if done.returncode:
            skip(f"{command[0]} {command[1]}: {done.stderr.strip().splitlines()[-1]}")


def said(command: list[str | Path]) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Fault(f"{' '.join(map(str, command[:3]))}: {done.stderr.strip()}")
    return done.stdout


def render(tools: Tools, *arguments: str | Path) -> str:
    return said([tools.helm, "template", "cubeshim", CHART, "--namespace", "cubeshim", *arguments])


def documents(manifest: str) -> list[dict]:
    return [found for found in yaml.safe_load_all(manifest) if found]


def admitted(tools: Tools) -> dict[str, dict]:
    with tempfile.TemporaryDirectory() as work:
        policy = Path(work, "policy.yaml")
        policy.write_text(render(tools, "--values", HERE / "values.yaml"))
        said([tools.admit, policy, work, *CASES.values()])
        return {
            name: yaml.safe_load(Path(work, file.name).read_text()) for name, file in CASES.items()
        }


def write(tools: Tools) -> None:
    (HERE / "expected").mkdir(exist_ok=True)
    for name, pod in admitted(tools).items():
        expected_file(name).unlink(missing_ok=True)
        if pod != case(name):
            expected_file(name).write_text(yaml.safe_dump(pod))
    MANIFEST.write_text(stamp() + render(tools))


def difference(wanted: object, found: object) -> str:
    texts = (yaml.safe_dump(one).splitlines() for one in (wanted, found))
    return "\n".join(difflib.unified_diff(*texts, "expected", "found", lineterm=""))


def check_pods(tools: Tools) -> Iterable[str]:
    for name, pod in admitted(tools).items():
        if pod != expected(name):
            yield f"{name}: the policy makes another pod\n{difference(expected(name), pod)}"


def check_manifest(tools: Tools) -> Iterable[str]:
    said([tools.helm, "lint", "--strict", CHART])
    if MANIFEST.read_text() != stamp() + render(tools):
        yield "cubeshim.yaml is not what the chart makes: check.py --write"


def check_schemas(tools: Tools) -> Iterable[str]:
    texts = {name: render(tools, *arguments) for name, arguments in VARIANTS.items()}
    texts |= {name: yaml.safe_dump(expected(name)) for name in CASES}
    with tempfile.TemporaryDirectory() as work:
        for name, text in {"cubeshim.yaml": MANIFEST.read_text(), **texts}.items():
            file = Path(work, f"{name}.yaml")
            file.write_text(text)
            done = subprocess.run([tools.validate, "--strict", file],
                                  capture_output=True,
                                  text=True)
            if done.returncode:
                yield f"{name}: {done.stdout}{done.stderr}"


def check_kyverno(tools: Tools) -> Iterable[str]:
    """Kyverno's policy has the same expressions, and one selector for both."""
    old = render(tools, "--kube-version", "1.31", "--api-versions",
                 "policies.kyverno.io/v1/MutatingPolicy")
    policies = {found["kind"]: found["spec"] for found in documents(old + "---\n" + render(tools))}
    kyverno, native = policies["MutatingPolicy"], policies["MutatingAdmissionPolicy"]
    binding = policies["MutatingAdmissionPolicyBinding"]
    for part in ("mutations", "variables", "matchConditions"):
        if kyverno[part] != native[part]:
            yield f"Kyverno's policy has other {part}"
    if kyverno["matchConstraints"] != native["matchConstraints"] | binding["matchResources"]:
        yield "Kyverno's policy matches other pods"


def check_values(tools: Tools) -> Iterable[str]:
    for value in REFUSED:
        try:
            render(tools, "--set", value)
            yield f"the chart takes {value}"
        except Fault as fault:
            if value.partition("=")[0].split(".")[-1] not in str(fault):
                yield f"{value}: {fault}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--tools", type=Path, required=True, metavar="DIR")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    tools = Tools(options.tools.resolve())
    if options.write:
        write(tools)
    checks = (check_pods, check_manifest, check_schemas, check_kyverno, check_values)
    faults = [fault for check in checks for fault in check(tools)]
    print(*faults, f"{len(CASES)} pods, {len(faults)} faults", sep="\n")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
