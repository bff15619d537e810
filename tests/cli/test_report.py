"""`cubeshim report`: compares jobs by the JSON that they have written."""
import copy
import json
import re
import unittest
import xml.dom.minidom
from html.parser import HTMLParser

from cli_case import Case

VOID = {"br", "meta"}


class Tags(HTMLParser):
    """Checks that each tag is closed, and collects the text between the tags."""
    def __init__(self):
        super().__init__()
        self.open, self.text = [], ""

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag

    def handle_data(self, data):
        self.text += data


class Report(Case):
    def setUp(self):
        super().setUp()
        self.work = self.data.parent
        path = self.work / "job.json"
        done = self.run_program("cat", self.file, self.file,
                                options=["--stats", path, "--stats-format", "json"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.real = json.loads(path.read_text())
        # The times are fixed, so that no figure is random.
        self.real["latency_us"] = {
            "hit": {"p50": 1.0, "p99": 2.0}, "miss": {"p50": 1000.0, "p99": 3000.0}
        }
        self.real["origin"] = dict.fromkeys(self.real["origin"], 1)
        self.real["time_ns"] = dict.fromkeys(self.real["time_ns"], 0)

    def made(self, name, *changes):
        """Writes a file with a line for each of the changes: {"origin.opens": 3}."""
        lines = []
        for change in changes:
            report = copy.deepcopy(self.real)
            for field, value in change.items():
                *objects, last = field.split(".")
                place = report
                for part in objects:
                    place = place[part]
                place[last] = value
            lines.append(json.dumps(report) + "\n")
        path = self.work / name
        path.write_text("".join(lines))
        return path

    def table(self, *files):
        done = self.command("report", *files)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        return done.stdout.decode()

    def test_a_report_of_a_job_is_shown(self):
        text = self.table(self.work / "job.json")
        self.assertRegex(text, r"^A: .*/job\.json\n +A\ntime of the job +\d")
        self.assertRegex(text, r"\nfile opens +2\n")
        self.assertRegex(text, r"\nhit ratio +50\.0 %\n")
        self.assertRegex(text, r"\nwaited for the origin +\S.*\n$")

    def test_two_jobs_stand_beside_each_other(self):
        base = {
            "milliseconds": 20000, "opens": 3000, "hits.ram": 2000, "misses": 1000,
            "time_ns.misses": 2_000_000_000, "time_ns.hits": 4_000_000, "origin.bytes": 50 << 20,
            "bytes_served": 150 << 20
        }
        a = self.made("a.json", base)
        b = self.made(
            "b.json", base | {
                "milliseconds": 10000, "hits.ram": 2990, "misses": 10, "time_ns.misses": 20_000_000,
                "origin.opens": 4, "origin.bytes": 5 << 20, "latency_us.miss.p99": 1500.0,
                "latency_us.miss.p50": 1100.0, "bypassed.write": 9
            })
        self.assertEqual(
            self.table(a, b), f"""A: {a}
B: {b}
                                      A            B
time of the job                  20.0 s       10.0 s x0.50
file opens                         3000         3000 x1.00
file opens per second               150          300 x2.00
hit ratio                        66.7 %       99.7 % +33.0
not served                            0            9
memory in use                     0.2 %        0.2 % +0.0
bytes to the program          150.0 MiB    150.0 MiB x1.00
operations at the origin              3           15 x5.00
bytes from the origin          50.0 MiB      5.0 MiB x0.10
waited for the origin             2.0 s      20.0 ms x0.01
hits.ram                           2000         2990 x1.50
misses                             1000           10 x0.01
latency_us.miss.p99              3.0 ms       1.5 ms x0.50
""")

    def test_the_last_of_many_jobs_in_a_file_counts(self):
        path = self.made("many.json", {"milliseconds": 9000, "opens": 100},
                         {"milliseconds": 1000, "opens": 10}, {"milliseconds": 2000, "opens": 70})
        text = self.table(path)
        self.assertIn("many.json (the last of 2 jobs in it)\n", text)
        self.assertRegex(text, r"\nfile opens +70\n")

    def test_job_that_opened_less_and_took_longer_starts_a_new_one(self):
        path = self.made("two.json", {"milliseconds": 1000, "opens": 100, "origin.reads": 500},
                         {"milliseconds": 2000, "opens": 50})
        first, last = map(json.loads, path.read_text().splitlines())
        del last["origin"]["reads"]
        path.write_text(json.dumps(first) + "\n" + json.dumps(last) + "\n")
        text = self.table(path, self.made("one.json", {"origin.reads": 500}))
        self.assertIn("two.json (the last of 2 jobs in it)\n", text)
        self.assertRegex(text, r"\norigin\.reads +0 +500\n")

    def test_invalid_report_is_reported_in_one_line(self):
        good = self.made("good.json", {})
        whole = good.read_text()
        for name, text, says in (
            ("cut.json", whole[:200], ", line 1: a JSON object without its end: was it cut off?"),
            ("cut-later.json", whole * 2 + whole[:-9],
             ", line 3: a JSON object without its end: was it cut off?"),
            ("other.json", '{"a": 1}\n', ", line 1: no report of a job: it has no field opens"),
            ("list.json", "[1]\n",
             ", line 1: no report of a job: CUBESHIM_STATS and CUBESHIM_STATS_FORMAT=json write one"
            ),
            ("bytes", "\0\x01\n",
             ", line 1: no report of a job: CUBESHIM_STATS and CUBESHIM_STATS_FORMAT=json write one"
            ), ("old.json", re.sub(r'"milliseconds": \d+, ', "", whole),
                ", line 1: a report of another version: it has no field milliseconds"),
            ("text", "cubeshim: served: 1 file open\n",
             ", line 1: a report as text: CUBESHIM_STATS_FORMAT=json writes one that can be "
             "compared"
            ), ("huge", re.sub(r'"misses": \d+', '"misses": 1e308', whole),
                ", line 1: no report of a job: it has a figure that is negative or too large"),
            ("negative", re.sub(r'"misses": \d+', '"misses": -1', whole),
             ", line 1: no report of a job: it has a figure that is negative or too large"),
            ("deep", '{"a":' * 100000 + "1" + "}" * 100000,
             ", line 1: no report of a job: it has no field opens"), ("empty", "", ": is empty"),
            ("lines", "\n\n", ": is empty"), ("none", None,
                                              ": No such file or directory"), ("", None,
                                                                               ": is a directory")):
            with self.subTest(name):
                path = self.work / name
                if text is not None:
                    path.write_text(text)
                done = self.command("report", good, path)
                self.assertEqual((done.returncode, done.stdout, done.stderr.decode()),
                                 (1, b"", f"cubeshim: {path}{says}\n"))
        done = self.command("report", good, "/dev/null")
        self.assertEqual(done.stderr, b"cubeshim: /dev/null: is not a regular file\n")
        self.assertEqual(self.command("report").returncode, 2)

    def test_names_of_files_do_not_move_the_cursor(self):
        self.assertIn("job?[31m?of me.json\n", self.table(self.made("job\x1b[31m\nof me.json", {})))

    def page(self, *files):
        target = self.work / "page.html"
        done = self.command("report", "--html", target, *files)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"", b""))
        html = target.read_text()
        tags = Tags()
        tags.feed(html)
        self.assertEqual(tags.open, [])
        self.assertNotRegex(html, r"(src|href)=|@import|url\(")
        return html, tags.text, [
            xml.dom.minidom.parseString(svg)
            for svg in re.findall(r"<svg viewBox=\"0 0 760.*?</svg>", html, re.S)
        ]

    def test_the_page_draws_the_course(self):
        a = self.made(
            "<b>&.json",
            *({
                "milliseconds": 1000 * n, "opens": 100 * n, "hits.ram": 100 * n - 100,
                "misses": 100, "origin.opens": 100
            } for n in range(1, 5)))
        # No file was opened in the second second, and two reports are from the same moment.
        b = self.made(
            "b.json",
            *({"milliseconds": ms, "opens": n, "hits.ram": n, "misses": 0}
              for ms, n in ((1000, 10), (2000, 10), (3000, 50), (3000, 50))))
        _, text, charts = self.page(a, b)
        self.assertIn("<b>&.json", text)
        self.assertEqual(
            re.findall(r"Hit ratio|Files opened per second|Operations at the origin per "
                       r"second", text),
            ["Hit ratio", "Files opened per second", "Operations at the origin per second"])
        lines = [[[
            tuple(map(float, point.split()))
            for point in re.findall(r"[\d.]+ [\d.]+", path.getAttribute("d"))
        ]
                  for path in chart.getElementsByTagName("path")]
                 for chart in charts]
        self.assertEqual([[len(line) for line in chart] for chart in lines],
                         [[4, 2], [4, 3], [4, 3]])
        (ratio, gap), (opens, _), (origin, _) = lines
        bottom, top = 190, 10
        # In the first second there are no hits, and afterwards there are only hits.
        self.assertEqual([y for _, y in ratio], [bottom, top, top, top])
        self.assertEqual({y for _, y in opens}, {top})
        # There are one hundred opens per second; only those of the first second ask the origin.
        self.assertEqual([y for _, y in origin][1:], [bottom] * 3)
        self.assertLess(origin[0][1], bottom)
        self.assertEqual([x for x, _ in gap], [ratio[0][0], ratio[2][0]])
        path = charts[0].getElementsByTagName("path")[1].getAttribute("d")
        self.assertEqual(path.count("M"), 2, "a gap is no line")

    def test_a_long_course_is_drawn_in_fewer_steps(self):
        a = self.made("a.json", *({"milliseconds": 1000 * n, "opens": n} for n in range(1, 1000)))
        _, _, charts = self.page(a)
        points = re.findall(r"[ML]", charts[1].getElementsByTagName("path")[0].getAttribute("d"))
        self.assertTrue(300 < len(points) < 420, len(points))

    def test_page_groups_the_figures_and_marks_the_better_ones(self):
        base = {"milliseconds": 20000, "opens": 3000, "hits.ram": 2000, "misses": 1000}
        a = self.made("a.json", base)
        b = self.made(
            "b.json", base | {
                "milliseconds": 10000, "hits.ram": 2990, "misses": 10, "origin.reads": 500,
                "latency_us.hit.p50": 1500.0
            })
        # Job c has opened so many more files that its counts cannot be compared.
        c = self.made("c.json", base | {"milliseconds": 40000, "opens": 9000, "misses": 7000})

        def rows(*files):
            html = self.page(*files)[0]
            return [(name, re.findall(r'<td class="(\w*)">', rest)[1:])
                    for name, rest in re.findall(r"<tr><t[dh][^>]*>([^<]+)</t[dh]>(.*)</tr>", html)]

        found = rows(a, b)
        self.assertEqual([name for name, marks in found if not marks],
                         ["Summary", "Opens", "Origin", "Times"])
        for name, mark in (("time of the job", "better"), ("hit ratio", "better"), ("misses",
                                                                                    "better"),
                           ("origin.reads", "worse"), ("latency_us.hit.p50", "worse"),
                           ("file opens", ""), ("bytes to the program", "")):
            self.assertIn((name, [mark]), found)
        found = rows(a, c)
        for name, mark in (("time of the job", "worse"), ("misses", "")):
            self.assertIn((name, [mark]), found)

    def test_reports_when_the_memory_was_full(self):
        a = self.made("a.json", {"milliseconds": 1000}, {"milliseconds": 2000, "bypassed.full": 1},
                      {"milliseconds": 3000, "bypassed.full": 9})
        b = self.made("b.json", {"milliseconds": 3000, "bypassed.full": 9})
        c = self.made("c.json", {})
        self.assertRegex(self.table(a, b, c), r"\nmemory was full +by 2\.0 s +yes +no\n")
        self.assertNotIn("memory was full", self.table(c))

    def test_page_without_a_course_explains_how_to_record_one(self):
        html, text, charts = self.page(self.made("a.json", {}))
        self.assertEqual(charts, [])
        self.assertIn("CUBESHIM_STATS_INTERVAL=1", text)

    def test_a_page_that_cannot_be_written_is_reported(self):
        a = self.made("a.json", {})
        for target, why in ((self.work / "none/page", "No such file or directory"),
                            (self.work, "Is a directory"), ("/dev/full",
                                                            "No space left on device")):
            done = self.command("report", "--html", target, a)
            self.assertEqual((done.returncode, done.stderr.decode()),
                             (1, f"cubeshim: cannot write {target}: {why}\n"))


if __name__ == "__main__":
    unittest.main()
