"""Hosts that are built with sanitizers, and the orders of LD_PRELOAD that work."""
import subprocess
import unittest

from support import LIBRARY, Job, program

STEPS = ("read:DIR", "read:DIR", "threads:DIR:8:262144", "fork:DIR", "vfork:DIR", "held",
         "send:DIR")


class Sanitizers(Job):
    def check_host(self, name, preload=(LIBRARY,), **options):
        return self.check([program(name), *self.steps(*STEPS)], preload=list(preload), **options)

    def asan_runtime(self, name):
        """Returns the shared runtime with which the program is linked."""
        listed = subprocess.run(["ldd", program(name)], capture_output=True, text=True,
                                env=self.env).stdout
        for line in listed.splitlines():
            if "asan" in line and "=>" in line:
                return line.split()[2]
        self.fail(f"{name} is not linked with a shared runtime")

    def test_runtimes_inside_the_program(self):
        for name in ("company_gcc_asan_static", "company_clang_asan", "company_clang_tsan",
                     "company_gcc_ubsan", "company_clang_ubsan"):
            with self.subTest(name):
                self.check_host(name)

    def test_gcc_thread_sanitizer(self):
        self.check_host("company_gcc_tsan")

    def test_shared_asan_first_in_ld_preload(self):
        for name in ("company_gcc_asan", "company_clang_asan_shared"):
            with self.subTest(name):
                self.check_host(name, (self.asan_runtime(name), LIBRARY))

    def test_shared_asan_with_the_order_not_verified(self):
        self.env["ASAN_OPTIONS"] = "verify_asan_link_order=0"
        for name in ("company_gcc_asan", "company_clang_asan_shared"):
            with self.subTest(name):
                self.check_host(name)

    def test_shared_asan_after_the_library_ends_before_main_with_its_message(self):
        # The library cannot change this: the runtime reads the list of libraries before anything
        # else runs.
        for name in ("company_gcc_asan", "company_clang_asan_shared"):
            with self.subTest(name):
                done = self.run_one([program(name), *self.steps("read:DIR")], shim=True)
                self.assertEqual((done.status, done.out, done.ours), (1, "", []), str(done))
                self.assertIn("ASan runtime does not come first", done.err)

    def test_memory_sanitizer_is_reported_and_left_alone(self):
        self.check_host("company_clang_msan", hits=False,
                        says="without a cache.*MemorySanitizer.*address, thread")

    def test_profiler_walks_stacks_in_sanitized_hosts(self):
        # Records each call with its native stack, in threads, in a forked child, and in a handler
        # on its own stack.
        steps = ("read:DIR", "threads:DIR:8:262144", "fork:DIR", "vfork:DIR", "held",
                 "signal:DIR:32768")
        hosts = {
            "company_clang_asan": (), "company_clang_tsan": (), "company_gcc_tsan": (),
            "company_gcc_asan_static": (), "company_gcc_asan": None
        }
        self.settings |= {
            "CUBESHIM_PROFILE": str(self.dir / "raw.%p"), "CUBESHIM_PROFILE_EVERY": "1"
        }
        for name, before in hosts.items():
            with self.subTest(name):
                for old in self.dir.glob("raw.*"):
                    old.unlink()
                before = (self.asan_runtime(name),) if before is None else before
                self.check([program(name), *self.steps(*steps)], preload=[*before, LIBRARY])
                parent, child = sorted(
                    (path.read_text().splitlines() for path in self.dir.glob("raw.*")), key=len,
                    reverse=True)
                self.assertEqual((parent[-1], child[-1]), ("end", "end"))
                for lines, least in ((parent, 20 * 10), (child, 20)):
                    opens = [
                        line.split("\t")
                        for line in lines
                        if line.startswith("site\t") and line.split("\t")[2] == "open"
                    ]
                    self.assertGreaterEqual(sum(int(site[6].split(",")[0]) for site in opens),
                                            least)
                    self.assertEqual([site for site in opens if site[4] == "-"], [],
                                     "a native stack each")

    def test_a_mistake_of_the_program_is_still_found(self):
        # A read into a buffer that is too small is reported, because the interceptor runs before
        # the library.
        for name, text in (("company_clang_asan", "AddressSanitizer"), ("company_gcc_asan_static",
                                                                        "AddressSanitizer")):
            plain, shim = (self.run_one([program(name), *self.steps("read:DIR", "overflow:DIR")],
                                        shim=s) for s in (False, True))
            for done in (plain, shim):
                self.assertNotEqual(done.status, 0, str(done))
                self.assertIn(text, done.err, str(done))


if __name__ == "__main__":
    unittest.main()
