"""The figures of mudroom beside those of a loop with no harness at all: `python -m benchmarks`."""
