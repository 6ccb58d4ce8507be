"""Git on the host, for a folder whose contents others wrote: with a git folder and settings of our own, so that none of theirs runs.

Git does what the settings beside a repository say: monitors, hooks, filters, diff and merge programs. Naming what to switch off
is a list that is never complete, and content filters have no switch. So git is not shown those settings at all: it gets a git
folder that we made, with our settings, the repository's objects as an alternate store to read, and copies of its refs.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping

from ..errors import WorkspaceError

_SETTINGS = """[core]
	repositoryformatversion = 0
	filemode = true
	bare = false
	hooksPath = /dev/null
	fsmonitor = false
	attributesFile = /dev/null
	excludesFile = /dev/null
	editor = false
	pager = cat
	sshCommand = false
	askPass = false
[safe]
	bareRepository = explicit
[protocol]
	allow = never
[credential]
	helper =
[gc]
	auto = 0
[maintenance]
	auto = false
[commit]
	gpgSign = false
[diff]
	external =
[submodule]
	recurse = false
[user]
	name = mudroom
	email = mudroom@localhost
"""
_COPIED = ("HEAD", "packed-refs", "shallow", "index")
_ALWAYS = (
    "--no-pager",
    "--no-optional-locks",
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.fsmonitor=false",
)
_DIFFS = ("diff", "show", "log", "format-patch", "whatchanged")


class HostGit:
    """Runs of git over a workspace, none of whose settings take part.

    Arguments:
        root: the workspace; its `.git` must be a folder that is no link. folder: an own folder outside of it, made anew.

    What is written (commits, branches, worktrees) goes into the own folder; the repository itself is only read.
    Raises WorkspaceError where there is no repository, or one whose git folder is elsewhere: a pointer may have been rewritten.
    """

    def __init__(self, root: str, folder: str) -> None:
        self._root, self._folder = os.path.realpath(root), folder
        self._source = os.path.join(self._root, ".git")
        if os.path.islink(self._source) or not os.path.isdir(os.path.join(self._source, "objects")):
            raise WorkspaceError(
                f"{self._root} has no git folder of its own",
                remedy="Run git init there, or work without git.",
            )
        self.refresh()

    def refresh(self) -> None:
        """Take over the repository's refs, index and HEAD as they are now."""
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        for name in ("objects/info", "refs", "info"):
            os.makedirs(os.path.join(self._folder, name), exist_ok=True)
        self._write("config", _SETTINGS)
        self._write("objects/info/alternates", os.path.join(self._source, "objects") + "\n")
        for name in _COPIED:
            if os.path.isfile(source := os.path.join(self._source, name)) and not os.path.islink(
                source
            ):
                shutil.copyfile(source, os.path.join(self._folder, name), follow_symlinks=False)
        shutil.copytree(
            os.path.join(self._source, "refs"),
            os.path.join(self._folder, "refs"),
            symlinks=True,
            dirs_exist_ok=True,
        )

    def argv(self, *arguments: str) -> list[str]:
        """The command line for `git ARGUMENTS`; run it with `env` and in the workspace."""
        if arguments and arguments[0] in _DIFFS:
            arguments = (arguments[0], "--no-ext-diff", "--no-textconv", *arguments[1:])
        return ["git", *_ALWAYS, *arguments]

    def env(self, environment: Mapping[str, str]) -> dict[str, str]:
        """The environment: no settings of the machine or the user, no variable of git's but ours, no question to anyone."""
        kept = {
            name: value
            for name, value in environment.items()
            if name in ("PATH", "LANG", "TMPDIR") or name.startswith("LC_")
        }
        return kept | {
            "HOME": self._folder,
            "GIT_DIR": self._folder,
            "GIT_WORK_TREE": self._root,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_EDITOR": "false",
            "GIT_ALLOW_PROTOCOL": "none",
        }

    def _write(self, name: str, text: str) -> None:
        with open(os.path.join(self._folder, name), "w", encoding="utf-8") as file:
            file.write(text)
