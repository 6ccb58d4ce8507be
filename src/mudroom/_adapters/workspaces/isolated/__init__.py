"""Isolated workspaces: separate files for a run, kept as trees of git objects, and merged.

workspaces.py       a session's workspaces
kept_work.py        the work of all sessions, its overlaps, and the clean-up
store.py            trees of files, kept work, and its disk space
git_store.py        trees as git objects; the user's repository is only read
node_workspaces.py  a session's workspaces on a machine that does not see its folder
git.py              runs the program git without the settings of repositories or users; packs,
                    which carry a tree to another store
repository.py       the git repository that a folder belongs to
checkout.py         a folder with a tree's files, a git repository, and dependencies
merge.py            three-way merges of trees, and the conflicts a run must resolve
git_work.py         commits, stashes and staged contents that exist only in a run's git
ignored_work.py     files that git ignores, and whatever else no tree holds
landing/            writes the files of a merge to a folder: all of them, or none
"""
