"""Landings: the files of a merge reach a folder together, or not at all.

land.py            the two phases, and the recovery of an interrupted landing
files.py           the files: checks their rights, stages them beside their targets, renames them,
                   puts them back
landing_record.py  the plan on disk, for the next process after a kill
"""
