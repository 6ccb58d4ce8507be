"""Batches: the lines of a file, each run as one task of one session."""
