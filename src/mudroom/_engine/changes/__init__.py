"""Changes of files by effectful tools: the workspace before a call, compared with that after it.

snapshot.py      the state of a workspace, and the comparison of two states
versions.py      earlier contents of files that tools wrote
live_overlaps.py warnings about files that another running run changed
watch.py         the comparison before and after each call; calls at the same time share snapshots
unwatched.py     what nothing compares
merged_files.py  files of a merge, written only while they are as its plan expects them
"""
