"""Mounts a directory of this machine over sshfs, with a separate SSH server on a loopback port and
new keys."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.harness.errors import BenchError
from bench.harness.mount import check_fuse, comes_up, end, is_mounted, unmount

SYSTEM_PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))


def program(name: str) -> str:
    found = shutil.which(name, path=SYSTEM_PATH)
    if not found:
        raise BenchError(
            f"{name} is missing: install openssh-server, openssh-client and sshfs (make bench does)"
        )
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def write_settings(home: Path, port: int) -> Path:
    for name in ("host_key", "user_key"):
        subprocess.run([program("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-f", home / name],
                       check=True)
    key = (home / "host_key.pub").read_text().split()[:2]
    (home / "known_hosts").write_text(f"[127.0.0.1]:{port} {' '.join(key)}\n")
    settings = home / "sshd_config"
    settings.write_text(
        f"ListenAddress 127.0.0.1:{port}\nHostKey {home}/host_key\nPidFile none\n"
        f"AuthorizedKeysFile {home}/user_key.pub\nStrictModes no\nUsePAM no\n"
        "PasswordAuthentication no\nKbdInteractiveAuthentication no\n"
        "PermitRootLogin prohibit-password\n"
        "AllowTcpForwarding no\nSubsystem sftp internal-sftp\n")
    return settings


def start_server(home: Path, port: int) -> subprocess.Popen:
    settings = write_settings(home, port)
    if os.getuid() == 0:
        # sshd needs this directory to separate privileges; normally the service creates it.
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    # sshd runs in the foreground and in its own session: Ctrl-C ends the bench, which then
    # unmounts.
    return subprocess.Popen([program("sshd"), "-D", "-e", "-f", settings], stdin=subprocess.DEVNULL,
                            stderr=(home / "sshd.log").open("wb"), start_new_session=True)


def wait_for(what: str, ready, child: subprocess.Popen, log: Path) -> None:
    if not comes_up(ready, child):
        said = log.read_text(errors="replace").strip().splitlines()[-1:] or ["no word from it"]
        raise BenchError(f"{what}: {said[0]}")


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def sshfs_mounted(work: Path, source: Path) -> Iterator[Path]:
    """Mounts `source` over SSH, at a fresh directory below `work`."""
    check_fuse()
    sshfs = program("sshfs")
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ssh-", dir=work)))
        port = free_port()
        server = start_server(home, port)
        stack.callback(end, server, first_wait=0.0)
        wait_for("sshd did not start", lambda: answers(port), server, home / "sshd.log")
        point = home / "mount"
        point.mkdir()
        options = (
            f"IdentityFile={home}/user_key,IdentitiesOnly=yes,"
            f"UserKnownHostsFile={home}/known_hosts,BatchMode=yes,port={port}")
        user = pwd.getpwuid(os.getuid()).pw_name
        log = home / "sshfs.log"
        child = subprocess.Popen(
            [sshfs, "-f", "-F", "/dev/null", "-o", options, f"{user}@127.0.0.1:{source}", point],
            stdin=subprocess.DEVNULL, stderr=log.open("wb"), start_new_session=True)
        stack.callback(end, child)
        stack.callback(unmount, point)
        wait_for(f"sshfs did not mount {point}", lambda: is_mounted(point), child, log)
        yield point
