"""Batches: the lines of a file, each run as a task in one session."""
