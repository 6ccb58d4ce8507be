"""Isolated workspaces: files of its own for a run, kept as trees of git objects, and merged.

git.py         runs the program git without settings of repositories or users
repository.py  the git repository that a folder belongs to
store.py       trees of files as git objects; the folder's repository is only read
checkout.py    a folder with the files of a tree, and a git repository of its own
merge.py       the three-way merge of two trees
overlap.py     files that several runs changed
dependencies.py  ignored files that a workspace gets
recent_files.py  times of index files
workspaces.py  the workspaces of one session
kept_work.py   the work of all sessions, and the clean-up
"""
