"""Landings: the files of a merge reach a folder together, or none of them does.

land.py            the two phases, and what becomes of a landing that was interrupted
files.py           one file: staged beside its target, renamed, put back
rights.py          what forbids a rename, looked at before the first one
landing_record.py  the plan on the disk, for the process after a kill
"""
