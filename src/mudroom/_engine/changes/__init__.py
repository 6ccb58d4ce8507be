"""File changes by effectful tools: compares the workspace before a call with that after it.

watch.py         snapshots of a workspace, compared before and after each call
live_overlaps.py warnings about files that another running run changed
merged_files.py  files of a merge, written only if they are as its plan expects
"""
