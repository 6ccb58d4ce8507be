"""Landings: the files of a merge reach a folder together, or none of them does.

land.py            the two phases, and what becomes of a landing that was interrupted
files.py           the files: their rights looked at first, staged beside their targets, renamed,
                   put back
landing_record.py  the plan on the disk, for the process after a kill
"""
