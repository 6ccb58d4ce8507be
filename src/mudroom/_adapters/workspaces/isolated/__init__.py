"""Isolated workspaces: files of its own for a run, kept as trees of git objects, and merged.

workspaces.py       the workspaces of one session
kept_work.py        the work of all sessions, overlaps, and the clean-up
store.py            trees of files, kept work, and the disk space for it
git_store.py        trees as git objects; the user's repository is only read
node_workspaces.py  the workspaces of a session on a machine that does not see its folder
git.py              runs the program git without settings of repositories or users; packs, with
                    which a tree travels to another store
repository.py       the git repository that a folder belongs to
checkout.py         a folder with the files of a tree, a git repository, and dependencies
merge.py            the three-way merge of two trees, and the conflicts that a run has to decide
git_work.py         commits, stashes and staged contents that are only in the git of a run
ignored_work.py     files that git ignores, and what no tree has
landing/            how the files of a merge reach a folder: all of them, or none
"""
