"""The error that the benchmarks and the demo raise."""


class BenchError(Exception):
    """The run cannot continue, or would compare different work. The error's text is the line to
    print."""
