"""`mudroom batch`: runs the lines of a file.

open_input.py    the file with the lines, or a copy of stdin
output.py        which batch an output belongs to
run.py           opens the session of the batch and runs it
status.py        the status, for another process
"""
