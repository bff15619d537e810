"""The benchmarks and the demo. Each subject has its own folder; all subjects share harness/ and
data/.

A regular package, so that Python does not merge another folder called bench (tests/bench) into
it."""
