"""Batches: the lines of a file, each run as one task of one session.

line_formats  one line of the input: its formats and errors
quick_lines   many native lines, checked at once
number_set    sets of numbers that take 8 bytes for each
input_file    the whole input: checked before the first run (ids are unique), then read by line
results       lines of the output, and the file with them
recorded_results  results and open runs of earlier processes, from the journal
saved_record  what the first events of the journal say, so that a restart reads few of them
batch         starts the lines, `parallel` at a time; the others wait for a place
status        numbers for screens: done, failed, rate, costs
control       files through which other processes read the status and change a batch

The journal is the only state: one session per batch, one root run per line. The output is derived.
"""
