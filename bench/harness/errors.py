"""The one error of the benchmarks and the demo."""


class BenchError(Exception):
    """The run cannot continue, or would compare different work; the error's text is the one line to
    print."""
