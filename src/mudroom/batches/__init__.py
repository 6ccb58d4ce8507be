"""Batches: the lines of a file, each run as one task of one session.

line_formats  one line of the input: its formats and errors
input_file    the whole input: checked before the first run, then read line by line
results       lines of the output, and the file with them
recorded_results  results and open runs of earlier processes, from the journal
batch         starts the lines, `parallel` at a time
status        numbers for screens: done, failed, rate, costs
control       files through which other processes read the status and change a batch

The journal is the only state: one session per batch, one root run per line. The output is derived.
"""
