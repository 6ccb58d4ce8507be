"""Batches: the lines of a file, each run as one task of one session.

line_formats  one line of the input: its formats and errors
input_file    the whole input: checked before the first run, then read line by line
batch_record  what earlier processes did, from the journal
results       lines of the output, and the file with them
batch         runs the lines, `parallel` at a time
status        numbers for screens: done, failed, rate, costs

The journal is the only checkpoint: one session per batch, one root run per line. The output is
derived from it.
"""
