"""Isolated workspaces: files of its own for a run, kept as trees of git objects, and merged.

workspaces.py       the workspaces of one session
quota.py            the disk space that they may take
kept_work.py        the work of all sessions, and the clean-up
store.py            trees of files, and kept work
git_store.py        trees as git objects; the user's repository is only read
packs.py            files with which a tree travels to another store
received_store.py   trees of a session on a machine that does not see its folder
node_workspaces.py  the workspaces of a session on such a machine
trees.py            values of trees
git/                runs the program git without settings of repositories or users
repository.py       the git repository that a folder belongs to
checkout.py         a folder with the files of a tree, a git repository, and dependencies
merge.py            the three-way merge of two trees
ignored_work.py     files that git ignores: work, or kept beside it
open_conflicts.py   conflicts that a run has to decide
landing/            how the files of a merge reach a folder: all of them, or none
conflict_marks.py   the marks around both versions of a text
overlap.py          files that several runs changed
"""
