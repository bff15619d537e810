"""The environments of the other company tests, with the files in a bucket and the tests' own
gateway. The kernel has the same files at the same paths. So each job has the same output without
the library, and if the library leaves a program alone. Some tests are left out: those that change
files, need links, expect that no process keeps the region (the gateway does), or expect that a job
can continue without a region."""
import unittest

import test_limits
import test_namespaces
import test_privileges
import test_seccomp
import test_start
import test_tools
from support import BUILD, Job


class InBucket(Job):
    def setUp(self):
        super().setUp()
        del self.settings["CUBESHIM_PREFIXES"]
        self.settings |= {
            "CUBESHIM_BUCKETS": f"{self.data}=s3://{self.data.name}",
            "CUBESHIM_COMMAND": str(BUILD / "tests/bucket/fake_gateway"),
            "AWS_TEST_ROOT": str(self.data.parent), "AWS_TEST_LOG": str(self.dir / "requests")
        }

    def remove_regions(self):
        """Does nothing: the gateway removes its region, and could not do so if the name were
        removed first."""


def in_bucket(base, *names):
    """Returns the class with only these tests."""
    tests = {name.removeprefix("test_") for name in dir(base) if name.startswith("test_")}
    assert tests >= set(names)
    others = {"test_" + name: None for name in tests - set(names)}
    return type(base.__name__ + "InBucket", (InBucket, base), others)


Limits = in_bucket(test_limits.Limits, "number_of_fds", "all_fds_in_use", "address_space",
                   "data_segment", "limits_lowered_below_open_files", "stack",
                   "smallest_thread_stacks", "signal_stack_of_the_least_size")
Namespaces = in_bucket(test_namespaces.Namespaces, "chroot_midway", "pivot_root", "proc_goes_later",
                       "kinds_of_dev_shm", "dev_shm_that_is_full")
Privileges = in_bucket(test_privileges.Privileges, "set_user_id_program_is_left_alone",
                       "dropping_midway", "not_dumpable", "no_new_privileges")
Within = in_bucket(test_seccomp.Within, "a_filter_before_the_first_read",
                   "children_of_the_sandboxed", "by_the_system_call_itself")
Start = in_bucket(test_start.Start, "closed_standard_fds", "environments",
                  "children_with_an_empty_environment", "umask", "working_directory_is_gone")
Tools = in_bucket(test_tools.Tools, "gdb", "strace_follows_children")
Loader = in_bucket(test_tools.Loader, "bind_now", "audit", "fixed_addresses",
                   "dlopen_storm_in_threads")

if __name__ == "__main__":
    unittest.main()
