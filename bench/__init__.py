"""The benchmarks and the demo. Each subject has a folder; all share harness/ and data/.

A regular package, so that no other folder called bench (tests/bench) is taken for a part of it."""
