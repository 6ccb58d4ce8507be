"""Changes of files by effectful tools: the workspace before a call, compared with that after it.

watch.py         the state of a workspace, and the comparison before and after each call
live_overlaps.py warnings about files that another running run changed
merged_files.py  files of a merge, written only while they are as its plan expects them
"""
