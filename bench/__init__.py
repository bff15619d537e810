"""The benchmarks and the demo. A folder for each subject; harness/ and data/ are what all of them
share.

A regular package, so that no other folder called bench (tests/bench) is taken for a part of it."""
