"""A real Prometheus scrapes `cubeshim exporter` while a job reads a slow mount through memory, a
disk and a cluster. Tests the queries, the rules and the dashboard. CUBESHIM_COMMAND,
CUBESHIM_LIBRARY and CUBESHIM_LAGFS name the build's files; prometheus and promtool are Debian's."""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

sys.path[:0] = [
    str(Path(__file__).resolve().parent.parent.parent),
    str(Path(__file__).resolve().parent)
]
from bench.harness.mount import SlowMount  # noqa: E402
from cluster_servers import Memcached, free_port, wait_until  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent.parent
COMMAND, LAGFS = os.environ["CUBESHIM_COMMAND"], os.environ["CUBESHIM_LAGFS"]
DEPLOY = ROOT / "doc/deploy"
FILES, SMALL, LARGE = 40, 20_000, 3_000_000
CONFIG = """
global: {{scrape_interval: 250ms, scrape_timeout: 250ms, evaluation_interval: 250ms}}
rule_files: [{rules}]
scrape_configs:
  - job_name: cubeshim
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""
# The rules cover the past minutes, and their conditions must hold for minutes.
OF_CACHES = "{__name__=~'cubeshim_.*', __name__!~'cubeshim_exporter_.*|.*:.*'}"
# For each input line, reads all files of the named folder as often as the line says.
JOB = """
import os, sys
print('ready', flush=True)
for line in sys.stdin:
    times, where = line.split()
    for _ in range(int(times)):
        for folder, _, files in os.walk(os.path.join(sys.argv[1], where)):
            for name in files:
                with open(os.path.join(folder, name), 'rb') as file:
                    while file.read(1 << 20):
                        pass
        os.path.exists(os.path.join(sys.argv[1], 'none'))
    print('done', flush=True)
"""


class Prometheus:
    def __init__(self, test, target: int):
        self.port, self.errors = free_port(), test.scratch / "prometheus.log"
        config = test.scratch / "prometheus.yaml"
        config.write_text(CONFIG.format(rules=DEPLOY / "alerts.yaml", port=target))
        errors = test.enterContext(self.errors.open("w"))
        self.child = subprocess.Popen([
            "prometheus", f"--config.file={config}", f"--storage.tsdb.path={test.scratch}/tsdb",
            "--log.level=warn", f"--web.listen-address=127.0.0.1:{self.port}"
        ], stdout=errors, stderr=errors)
        test.addCleanup(self.child.wait)
        test.addCleanup(self.child.kill)
        wait_until(self.is_ready, "prometheus is not ready")

    def ask(self, path: str, **fields):
        url = f"http://127.0.0.1:{self.port}/{path}?{urllib.parse.urlencode(fields)}"
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                return answer.read()
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{fields}: {error.read().decode()}") from None

    def is_ready(self) -> bool:
        try:
            return bool(self.ask("-/ready"))
        except (OSError, AssertionError):
            assert self.child.poll() is None, self.errors.read_text()
            return False

    def query(self, text: str) -> list[float]:
        """Returns the current values of the query's series."""
        found = json.loads(self.ask("api/v1/query", query=text))["data"]
        return [float(row["value"][1]) for row in found["result"]
               ] if found["resultType"] == "vector" else [float(found["result"][1])]


def panel_queries() -> dict[str, str]:
    """Returns the queries of the panels, with all variables of the page replaced."""
    board = json.loads((DEPLOY / "grafana.json").read_text())
    return {
        f"{panel['title']}, {target['refId']}": target["expr"].replace(
            "$__rate_interval", "1m").replace("$instance", ".*").replace("$cache", ".*")
        for panel in board["panels"]
        for target in panel["targets"]
    }


class Scraped(unittest.TestCase):
    def setUp(self):
        self.scratch = Path(
            self.enterContext(tempfile.TemporaryDirectory(prefix="cubeshim-prometheus-")))
        self.ram_dir = Path(
            self.enterContext(
                tempfile.TemporaryDirectory(prefix="cubeshim-prometheus-", dir="/dev/shm")))
        source = self.scratch / "source"
        for i in range(FILES):
            (source / f"d{i % 4}").mkdir(parents=True, exist_ok=True)
            (source / f"d{i % 4}/f{i}").write_bytes(os.urandom(SMALL))
        (source / "large").write_bytes(os.urandom(LARGE))
        for path in [*source.rglob("*"), source]:
            os.utime(path, (1e9, 1e9))
        self.mount = self.enterContext(SlowMount(Path(LAGFS), source, self.scratch, 300))
        self.server = self.enterContext(Memcached())
        self.exporter = self.run_exporter()
        self.prometheus = Prometheus(self, self.port)

    def run_exporter(self, port: int = 0):
        self.errors = self.scratch / "exporter.log"
        with self.errors.open("w") as errors:
            child = subprocess.Popen(
                [COMMAND, "exporter", "--listen", f"127.0.0.1:{port}", "--ram-dir", self.ram_dir],
                text=True, stdout=subprocess.PIPE, stderr=errors)
        self.addCleanup(child.stdout.close)
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        self.port = int(re.search(r":(\d+)/", child.stdout.readline())[1])
        return child

    def run_job(self):
        words = [
            "run", "-p", self.mount.path, "--ram-dir", self.ram_dir, "--ram", "64M", "--disk-dir",
            self.scratch / "disk", "--max-file", "1M", "--cluster",
            f"memcached://127.0.0.1:{self.server.port}", "--stats", "off", "/usr/bin/python3",
            "-uc", JOB, self.mount.path
        ]
        clean = {k: v for k, v in os.environ.items() if not k.startswith("CUBESHIM_")}
        (self.scratch / "disk").mkdir(exist_ok=True)
        job = subprocess.Popen([COMMAND, *map(str, words)], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True, env=clean)
        self.addCleanup(lambda: (job.kill(), job.wait(), job.stdin.close(), job.stdout.close()))
        self.assertEqual(job.stdout.readline(), "ready\n")
        return job

    def read(self, job, times: int, folder: str):
        print(times, folder, file=job.stdin, flush=True)
        self.assertEqual(job.stdout.readline(), "done\n")

    def until_it_says(self, query: str, wanted):
        wait_until(lambda: wanted(self.prometheus.query(query)),
                   f"{query}: {self.prometheus.query(query)}")

    def test_from_the_first_file_to_the_last_process(self):
        job = self.run_job()
        # A rate needs samples after the first scrape.
        self.read(job, 1, "d0")
        self.until_it_says("cubeshim_cluster_server_up", lambda found: found == [1])
        self.until_it_says("cubeshim_hits_total", lambda found: len(found) == 3)
        self.read(job, 3, ".")
        opens = "sum(cubeshim_hits_total) + sum(cubeshim_misses_total)"
        self.until_it_says(opens, lambda found: found == [3 * FILES + FILES / 4])
        self.until_it_says("cubeshim_blocks_files_total", lambda found: found == [3])
        self.every_query_is_answered()
        self.what_must_have_a_value()
        self.until_it_says("cubeshim_tier:hit_ratio:rate5m", lambda found: len(found) == 3)
        self.every_rule_is_well()
        with self.subTest("promtool"):
            self.check_by_promtool()
        job.send_signal(signal.SIGKILL)
        job.wait()
        self.until_it_says("cubeshim_processes", lambda found: found == [0])
        self.assertEqual(self.prometheus.query("cubeshim_prefetch_depth"), [0])
        self.assertEqual(self.prometheus.query(opens), [3 * FILES + FILES / 4])
        with self.subTest("a cache that is gone"):
            [region] = [path for path in self.ram_dir.iterdir() if not path.name.endswith(".sock")]
            region.unlink()
            self.until_it_says(f"count({OF_CACHES}) or vector(0)", lambda found: found == [0])
        with self.subTest("an exporter that is killed, and comes again"):
            self.exporter.kill()
            self.until_it_says("up", lambda found: found == [0])
            self.assertEqual(self.prometheus.query("{__name__=~'cubeshim_exporter_.*'}"), [])
            self.assertEqual(self.errors.read_text(), "")
            self.run_exporter(self.port)
            self.until_it_says("up", lambda found: found == [1])
        self.assertEqual(self.errors.read_text() + self.prometheus.errors.read_text(), "")

    def every_query_is_answered(self):
        for panel, query in panel_queries().items():
            with self.subTest(panel=panel):
                self.assertNotEqual(self.prometheus.query(query), [], query)

    def what_must_have_a_value(self):
        """Checks the panels that must have a value. Prometheus has scraped the job before the job
        read its files."""
        queries = panel_queries()
        for panel in ("Hit ratio, A", "Opens a second, A", "Memory used, A", "Processes, A",
                      "Bytes a second, A", "Latency of an open, C", "Prefetch window, B",
                      "Memory and disk, A", "Cluster servers, A", "Cluster memory, B",
                      "Names answered from memory, A", "Large files, A"):
            with self.subTest(panel=panel):
                # On a busy machine, a server of the cluster can seem to be down for a moment.
                wait_until(lambda: max(self.prometheus.query(queries[panel])) > 0,
                           f"a value above 0 in {panel}")

    def every_rule_is_well(self):
        groups = json.loads(self.prometheus.ask("api/v1/rules"))["data"]["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        self.assertEqual({rule["health"] for rule in rules}, {"ok"}, rules)
        self.assertGreater(len(rules), 10)
        for rule in rules:
            if rule["type"] == "recording":
                with self.subTest(rule=rule["name"]):
                    self.until_it_says(rule["name"], bool)

    def check_by_promtool(self):
        """`check metrics` prints a line for each name that breaks the conventions."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=60) as answer:
            scraped = answer.read()
        written = subprocess.run(
            [COMMAND, "exporter", "--textfile", "-", "--once", "--ram-dir", self.ram_dir],
            capture_output=True, check=True).stdout
        for text in (scraped, written):
            self.assertIn(b"cubeshim_hits_total{", text)
            done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"", b""))


class Rules(unittest.TestCase):
    def test_rules_are_valid_and_alerts_fire_on_their_conditions(self):
        for words in (["check", "rules", "--lint=all", "--lint-fatal", DEPLOY / "alerts.yaml"],
                      ["test", "rules",
                       Path(__file__).with_name("alerts_test.yaml")]):
            done = subprocess.run(["promtool", *words], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
