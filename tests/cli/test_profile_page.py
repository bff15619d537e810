"""Tests profile.html in a browser: the findings, their functions, and the names of programs as
plain text."""
import os
import re
import shutil
import subprocess
import unittest
from html.parser import HTMLParser

from cli_case import Case

HOSTILE = "</script><script>document.title='taken'</script><b id=hostile>"
COUNTS = "800,640000,9000000000,800,8000000000,3,0,0"
LATENCY = ",".join(["0"] * 20 + ["700", "100"] + ["0"] * 18)
LISTS = ",".join(["0"] * 20 + ["2"] + ["0"] * 19)
# 40 files of 20 reads and 9 seeks each.
OPENS = "40,0,0,0,0,0,0,0,0,40,7000000000,0,0,0,0,0,800,360,0,640000,7000000000"
RAW = "\n".join([
    "cubeshim-profile\t3\t77\t1\t1000000000\t11000000000\t1\t0",
    f"code\t1\t12\tload_{HOSTILE}\t/job/train.py",
    f"site\t1\topen\t/mnt/data/{HOSTILE}.jpg\t-\t1\t40,0,500000000,40,500000000,0,0,0\t{LATENCY}"
    f"\t{OPENS}",
    f"site\t2\tread\t/mnt/data/a.jpg\t-\t1\t{COUNTS}\t{LATENCY}\t-",
    f"site\t3\tlist\t/mnt/data\t-\t1\t10,0,4000000,10,4000000,0,0,5\t{LISTS}\t-",
    *(f"bin\t{level}\t{5_000_000_000 >> (24 + 2 * level)}\t8000000000\t840" for level in range(7)),
    "dropped\t0,0,0,0,0", "cost\t100,100,40000,50,50,100000,20,5000000,1000000", "end", ""
])


class Page(HTMLParser):
    """Collects the text below each element with an id, and the number of elements of each class and
    tag."""

    VOID = {"meta", "input", "br", "link", "img"}

    def __init__(self, text):
        super().__init__()
        self.texts, self.counts, self.ids, self._open = {}, {}, set(), []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        for name in (tag, *(found.get("class") or "").split()):
            self.counts[name] = self.counts.get(name, 0) + 1
        if "id" in found:
            self.ids.add(found["id"])
        if tag not in self.VOID:
            self._open.append((tag, found.get("id")))

    def handle_endtag(self, tag):
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data):
        for _, name in self._open:
            if name:
                self.texts[name] = self.texts.get(name, "") + data


class ProfilePage(Case):
    def shown(self):
        """Returns the page as Chromium renders it."""
        raw, out = self.data / "raw", self.data / "out"
        raw.write_text(RAW)
        done = self.command("profile", "--read", raw, "--out", out)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(str(out / "profile.html"), done.stdout.decode())
        browser = shutil.which("chromium")
        self.assertIsNotNone(browser, "`make deps` installs chromium")
        shown = subprocess.run([
            browser, "--headless", "--disable-gpu", "--disable-dev-shm-usage",
            *(["--no-sandbox"] if os.geteuid() == 0 else []),
            f"--user-data-dir={self.data / 'browser'}", "--dump-dom",
            (out / "profile.html").as_uri()
        ], env={**os.environ, "HOME": str(self.data)}, capture_output=True, timeout=120)
        self.assertEqual(shown.returncode, 0, shown.stderr)
        return Page(shown.stdout.decode())

    def test_browser_shows_the_findings_and_runs_no_name_as_a_script(self):
        page = self.shown()
        self.assertNotIn("hostile", page.ids)
        texts = page.texts
        self.assertIn("1 process, 10.0 s by the clock", texts["summary"])
        # 1,600 calls of 420 ns, 50 stacks of 2,040 ns, and 6 ms.
        self.assertIn(
            "the profiler took 6.8 ms, 0.1 % of it: 672 us in calls, 102 us for 50 native stacks, "
            "6.0 ms at the start and the end",
            texts["summary"])
        self.assertIn("850calls", texts["tiles"])
        self.assertEqual((page.counts["details"], page.counts["pattern"]), (1, 2))
        self.assertLess(texts["patterns"].index("less than 1 %"),
                        texts["patterns"].index("tree listed again"))
        self.assertIn("seek storm", texts["patterns"])
        self.assertIn("40 of 40 files, 20 reads and 9 seeks each", texts["patterns"])
        self.assertIn(f"load_{HOSTILE} (job/train.py:12)", texts["patterns"])
        self.assertIn(f"/mnt/data/{HOSTILE}.jpg", texts["patterns"])
        self.assertRegex(texts["flame"], re.escape(f"load_{HOSTILE} (/job/train.py:12)") + ".*read")
        self.assertGreaterEqual(page.counts["bar"], 4, "all, the function, its reads and its opens")
        self.assertIn("read: 800 calls", texts["histograms"])
        self.assertGreaterEqual(page.counts["column"], 4, "two columns each of open and read")
        self.assertGreaterEqual(page.counts["area"], 1)
        self.assertRegex(texts["sites"], r"800625.0 KiB9.00 s8.00 s3read ")


if __name__ == "__main__":
    unittest.main()
