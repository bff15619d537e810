"""`cubeshim doctor` and the servers of CUBESHIM_CLUSTER: real servers with each wrong flag, fake
servers of other versions, and a server that hangs."""
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import unittest
from pathlib import Path

from cli_case import COMMAND, Case

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "preload"))
from cluster_servers import Memcached, free_port, wait_until  # noqa: E402

GOOD = ("-c", "8192")


def answers(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Fake:
    """A server with these answers; it answers everything else with ERROR."""
    def __init__(self, answers: dict[bytes, bytes]):
        self.answers, self.listener = answers, socket.create_server(("127.0.0.1", 0))
        self.name = "127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                one, _ = self.listener.accept()
            except OSError:
                return
            with one, one.makefile("rb") as lines:
                for line in lines:
                    one.sendall(self.answers.get(line.strip(), b"ERROR\r\n"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()


@unittest.skipUnless(shutil.which("memcached"), "memcached is not installed")
class DoctorOfTheCluster(Case):
    def doctor(self, servers, *words, host=None, **options):
        """Returns the status, and health, text and advice of each finding about the cluster."""
        command = [
            COMMAND, "doctor", "--json", "--name", self.name, "-p", self.data, "--ram", "32M",
            "--cluster", "memcached://" + ",".join(servers), "--cluster-name", self.name, *words
        ]
        if host:
            command = [
                "unshare", "--uts", "sh", "-c", 'hostname "$1"; shift; exec "$@"', "sh", host,
                *command
            ]
        clean = {k: v for k, v in os.environ.items() if not k.startswith("CUBESHIM_")}
        done = subprocess.run(list(map(str, command)), capture_output=True, env=clean, timeout=300,
                              **options)
        findings = [(f["health"], f["what"], f["advice"]) for f in json.loads(done.stdout)]
        return done.returncode, [
            f for f in findings if any(word in f[1] for word in ("server", "node", "LOGIN"))
        ]

    def only(self, findings, text):
        """Returns the finding with this text; all other findings must be ok."""
        found = [f for f in findings if text in f[1]]
        self.assertEqual(len(found), 1, findings)
        self.assertEqual([f for f in findings if f[0] != "ok" and f != found[0]], [])
        return found[0][0], found[0][2]

    def server(self, *options, **more):
        return self.enterContext(Memcached(*options, **more))

    def test_all_is_well(self):
        servers = [self.server(*GOOD), self.server(*GOOD)]
        status, findings = self.doctor([s.name for s in servers])
        self.assertEqual((status, [f[0] for f in findings]), (0, ["ok"] * 3), findings)
        for server, finding in zip(servers, findings):
            self.assertRegex(
                finding[1],
                rf"^server {server.name}: memcached 1\.\S+, round trip \d+ us, 0 bytes of 64\.0 "
                r"MiB used, 81\d\d of 8192 connections left$"
            )
        self.assertIn(f"this node shares {self.data}; cubeshim doctor has not run on others today",
                      findings[2][1])

    def test_each_wrong_flag_is_named(self):
        plain = [
            "memcached", "-m", "64", "-l", "127.0.0.1",
            *(["-u", "root"] if os.geteuid() == 0 else [])
        ]
        for options, text, advice in (([
                "-I", "17m", "-o", "slab_chunk_max=16384"
        ], "drops old records when it is full", "start it with -M"), ([
                "-M", "-o", "slab_chunk_max=16384"
        ], "takes items up to 1.0 MiB; larger files are not shared, and CUBESHIM_MAX_FILE is 16.0 "
           "MiB",
                                                                      "start it with -I 17m"),
                                      (["-M", "-I", "17m"], "has slab_chunk_max 524288",
                                       "start it with -o slab_chunk_max=16384"), ([
                                           "-M", "-I", "17m", "-o", "slab_chunk_max=16384", "-c",
                                           "40"
                                       ], " of 40 connections left", "start it with -c 8192")):
            port = free_port()
            child = subprocess.Popen([*plain, "-p", str(port), *options], stdout=subprocess.DEVNULL,
                                     stderr=subprocess.DEVNULL)
            self.addCleanup(child.wait)
            self.addCleanup(child.kill)
            name = f"127.0.0.1:{port}"
            wait_until(lambda: answers(port), "memcached starts")
            with self.subTest(text):
                status, findings = self.doctor([name])
                bad = [f for f in findings if f[0] != "ok"]
                self.assertEqual(len(bad), 1, findings)
                self.assertIn(f"server {name}", bad[0][1])
                self.assertIn(text, bad[0][1])
                self.assertEqual((status, bad[0][0], bad[0][2].startswith(advice)),
                                 (0, "warn", True), findings)

    def test_a_full_server(self):
        server = self.server(*GOOD)
        for i in range(200):
            if not server.ask(b"ms fill%d 1000000\r\n%s\r\n" %
                              (i, bytes(1000000))).startswith(b"HD"):
                break
        status, findings = self.doctor([server.name])
        full = [f for f in findings if "is full" in f[1]]
        self.assertEqual((status, full[0][0], full[0][2]),
                         (0, "warn", "start it with a larger -m, or add a server"), findings)

    def test_other_versions(self):
        stats = (b"STAT max_connections 8192\r\nSTAT curr_connections 2\r\n"
                 b"STAT limit_maxbytes 1000\r\nSTAT bytes 0\r\nEND\r\n")
        old = self.enterContext(
            Fake({
                b"version": b"VERSION 1.6.17\r\n", b"mn": b"MN\r\n", b"stats": stats,
                b"stats settings": b"STAT evictions off\r\nEND\r\n"
            }))
        status, findings = self.doctor([old.name])
        self.assertEqual(status, 1)
        self.assertIn(("fail", f"server {old.name}: memcached 1.6.17 is too old",
                       "memcached 1.6.18 or later is needed"), findings)
        older = self.enterContext(Fake({b"version": b"VERSION 1.5.22\x1b[31m\r\n"}))
        status, findings = self.doctor([older.name])
        self.assertEqual(
            (status, findings),
            (1, [("fail", f"server {older.name}: memcached 1.5.22?[31m has no meta protocol",
                  "memcached 1.6.18 or later is needed")]))
        other = self.enterContext(Fake({}))
        status, findings = self.doctor([other.name])
        self.assertEqual((status, self.only(findings, f"server {other.name}: ERROR")[0]),
                         (1, "fail"))

    def test_hanging_and_missing_servers_delay_no_check(self):
        # If the servers were asked one after another, the checks would take 90 s. No check may take
        # a minute.
        hanging = [
            "127.0.0.1:%d" % self.enterContext(socket.create_server(
                ("127.0.0.1", 0))).getsockname()[1] for _ in range(60)
        ]
        good = self.server(*GOOD)
        gone = f"127.0.0.1:{free_port()}"
        status, findings = self.doctor([*hanging, gone, "no-such-host:1", good.name])
        self.assertEqual(status, 1)
        for server in hanging:
            self.assertIn(("fail", f"server {server}: no answer"), [f[:2] for f in findings])
        self.assertIn(f"server {gone}: Connection refused", [f[1] for f in findings])
        self.assertEqual(len([f for f in findings if "no-such-host" in f[1] and f[0] == "fail"]), 1)
        self.assertEqual(
            len([f for f in findings if f[1].startswith(f"server {good.name}: memcached")]), 1)

    def test_a_login(self):
        users, right, wrong = (self.data.parent / name for name in ("users", "right", "wrong"))
        users.write_text("cube:secret\n")
        right.write_text("cube:secret\n")
        wrong.write_text("cube:other\n")
        server = self.server(*GOOD, "-Y", str(users))
        for words, text in (([], "wants a login"), (["--cluster-login-file",
                                                     wrong], "wants another login")):
            status, findings = self.doctor([server.name], *words)
            self.assertEqual((status, self.only(findings, text)[0]), (1, "fail"))
        status, findings = self.doctor([server.name], "--cluster-login-file", right)
        self.assertEqual((status, {f[0] for f in findings}), (0, {"ok"}), findings)
        status, findings = self.doctor([server.name], "--cluster-login-file", "/no/such")
        self.assertEqual((status, self.only(findings, "CUBESHIM_CLUSTER_LOGIN_FILE=")[0]),
                         (1, "fail"))

    @unittest.skipIf(os.geteuid() != 0, "another host's name takes root")
    def test_nodes_compare_their_ids(self):
        servers = [self.server(*GOOD).name, self.server(*GOOD).name]
        self.doctor(servers, host="node-a")
        status, findings = self.doctor(list(reversed(servers)), host="node-b")
        self.assertIn(("ok", f"this node shares {self.data}; so do others: node-a", ""), findings)
        # Another path of the same data has another id, except if the same id is set for it.
        other = self.data.parent / "other"
        shutil.copytree(self.data, other)
        status, findings = self.doctor(servers, "--prefix", other, "--cluster-origin",
                                       f"{self.data}=ID:{other}=ID2", host="node-c")
        found = [f for f in findings if f[1].startswith("node node-a")]
        self.assertEqual([f[0] for f in found], ["warn"], findings)
        self.assertIn(
            f"node node-a shares {self.data}, and this node {self.data} as ID, {other} as ID2: "
            "neither finds",
            found[0][1])
        self.assertIn("CUBESHIM_CLUSTER_ORIGIN=PREFIX=ID", found[0][2])
        # Lists that differ.
        status, findings = self.doctor(servers[:1], host="node-d")
        self.assertEqual(
            [f[0] for f in findings if "has other servers: " + ",".join(sorted(servers)) in f[1]],
            ["warn"] * 3, findings)
        # A node that now has the same settings is no longer reported.
        self.doctor(servers, host="node-c")
        status, findings = self.doctor(servers, host="node-b")
        self.assertIn(("ok", f"this node shares {self.data}; so do others: node-a, node-c", ""),
                      findings)

    @unittest.skipIf(os.geteuid() != 0, "another host's name takes root")
    def test_values_written_by_others_are_ignored(self):
        server = self.server(*GOOD)
        for text in (
                b"",
                b"[1,2",
                b"[1,{}]",
                b'[{"node":1,"servers":"","roots":{},"time":1}]',
                json.dumps(
                    [{"node": "\x1b[2J", "servers": "x", "roots": {},
                      "time": int(time.time())}]).encode(),
                # Nodes that have left, and nodes with a wrong clock.
                json.dumps([{
                    "node": f"node-{days}", "servers": "x", "roots": {},
                    "time": int(time.time()) + days * 86400
                } for days in (-2, 2)]).encode(),
                b"x" * (2 << 20)):
            server.put(f"cs2:{self.name}:doctor", text)
            status, findings = self.doctor([server.name])
            self.assertEqual((status, {f[0] for f in findings}), (0, {"ok"}), (text, findings))
        # Many nodes at the same time: each finds a free entry.
        threads = [
            threading.Thread(target=self.doctor, args=([server.name],),
                             kwargs={"host": f"node-{i}"}) for i in range(5)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        notes = json.loads(server.get(f"cs2:{self.name}:doctor"))
        self.assertLessEqual({f"node-{i}" for i in range(5)}, {note["node"] for note in notes})


if __name__ == "__main__":
    unittest.main()
