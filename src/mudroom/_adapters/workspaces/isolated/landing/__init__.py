"""Landings: the files of a merge reach a folder together, or none of them does.

land.py            the two phases, and what becomes of a landing that was interrupted
files.py           the files: staged beside their targets, renamed, put back
required_rights.py the rights for it, looked at first
landing_record.py  the plan on the disk, for the process after a kill
"""
