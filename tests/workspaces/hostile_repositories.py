"""Repositories whose settings name marker programs, and pipes at every path that git opens."""

from __future__ import annotations

import os
import re
import subprocess
import threading
from pathlib import Path

from tests.workspaces.git_projects import ENVIRONMENT, make_repository, run_git, write_files

from mudroom._adapters.workspaces.isolated.git import require_git
from mudroom._adapters.workspaces.isolated.node_workspaces import NodeWorkspaces, describe_source
from mudroom._adapters.workspaces.isolated.workspaces import IsolatedWorkspaces
from mudroom.errors import WorkspaceError

from .carriers import DirectCarrier

_VALUES = re.compile(
    r"(command|cmd|program|path|file|editor|pager|hook|helper|clean|smudge|process|textconv"
    r"|external|driver|vcs|pack|proxy|fsmonitor|askpass|dir|browser|url|uri|list|tool|viewer"
    r"|template|\*)$",
    re.IGNORECASE,
)
"""Ends of the names of settings whose values are programs or paths."""

_NO_PATHS = re.compile(
    r"^(advice|color|column|((fetch|receive)\.)?fsck)\.|hide|quotePath|needsFile|inUrl|HttpPath|cachetext",
    re.IGNORECASE,
)
"""Settings with such a name that are true or false: git would stop at a text."""

_FURTHER = (
    *("filter.<driver>.process", "trailer.<token>.command", "trailer.<token>.cmd", "alias.status"),
    *("pager.status", "pager.log", "hook.<name>.command", "merge.<driver>.driver"),
)
_NEEDED = (
    *("core.worktree", "core.bare", "core.hooksPath", "core.attributesFile", "include.path"),
    *("includeIf.<condition>.path", "remote.<name>.vcs", "remote.<name>.url", "alias.*"),
    *("core.excludesFile",),
)
"""Settings that have another value here: without it a plain git would stop before the others."""

_NAMES = {"driver": "evil", "name": "origin", "base": "x://y", "url": "x://y", "format": "openpgp"}
_ATTRIBUTES = "* filter=evil diff=evil merge=evil ident\n"


def list_settings() -> list[str]:
    """Return the settings of the installed git whose values are programs or paths."""
    result = subprocess.run(
        ["git", "help", "--config"], env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    names = {name for name in result.stdout.split() if _VALUES.search(name) and "." in name}
    names = {name for name in names if not _NO_PATHS.search(name)}
    assert len(names) > 60
    names = (names | set(_FURTHER)) - set(_NEEDED)
    filled = (re.sub(r"<([^>]*)>", lambda each: _NAMES.get(each[1], "evil"), n) for n in names)
    return sorted(name.replace("*", "evil") for name in filled)


class Markers:
    """Programs that record their names when they are started.

    Arguments:
        folder: for the programs. It must be outside of all repositories.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._record = folder / "started"
        (folder / "hooks").mkdir(parents=True)
        self._program = folder / "program"
        self._program.write_text(
            f'#!/bin/sh\nprintf "%s\\n" "${{0##*/}}" >> {self._record}\nexit 1\n'
        )
        self._program.chmod(0o755)
        for hook in ("post-index-change", "reference-transaction", "post-checkout", "pre-commit"):
            (folder / "hooks" / hook).symlink_to(self._program)
        (folder / "attributes").write_text(_ATTRIBUTES)

    def make(self, name: str) -> str:
        """Return the path of a marker."""
        place = self._folder / "".join(letter if letter.isalnum() else "_" for letter in name)
        if not place.exists():
            place.symlink_to(self._program)
        return str(place)

    def read(self) -> set[str]:
        """Return the names of those that were started."""
        return set(self._record.read_text().split()) if self._record.exists() else set()

    def poison(self, git_folder: Path) -> None:
        """Set every setting of a git folder to a marker, in its configuration and by includes."""
        included = self._folder / "included"
        if not included.exists():
            for name in list_settings():
                run_git(self._folder, "config", "--file", str(included), name, self.make(name))
        text = f"""
[core]
\trepositoryformatversion = 1
\thooksPath = {self._folder}/hooks
\tattributesFile = {self._folder}/attributes
\texcludesFile = {self._folder}/attributes
[extensions]
\tworktreeConfig = true
\tpartialClone = origin
[remote "origin"]
\turl = ./x
\tpromisor = true
[remote "second"]
\turl = x::y
\tvcs = {self.make("vcs")}
[include]
\tpath = {included}
[includeIf "gitdir:**"]
\tpath = {included}
"""
        with (git_folder / "config").open("a") as file:
            file.write(text)
        (git_folder / "config.worktree").write_text(
            f"[core]\n\tfsmonitor = {self.make('worktree')}\n"
        )
        (git_folder / "info").mkdir(exist_ok=True)
        (git_folder / "info/attributes").write_text(_ATTRIBUTES)
        (git_folder / "info/exclude").write_text("*.log\n")


def make_project(folder: Path) -> Path:
    """Make a repository with a submodule, a nested and a bare one, and a worktree beside it."""
    files: dict[str, str | bytes] = {
        ".gitattributes": _ATTRIBUTES,
        ".gitignore": "*.log\nnode_modules\n",
        "a.txt": "a\n" * 50,
        "sub/b.txt": "b\n",
    }
    library = make_repository(folder / "library", dict(files))
    project = make_repository(folder / "project", dict(files))
    run_git(project, "submodule", "--quiet", "add", str(library), "library")
    run_git(project, "commit", "--quiet", "-m", "submodule")
    run_git(project, "worktree", "add", "--quiet", str(folder / "linked"))
    for top in (project, make_repository(project / "nested", dict(files))):
        write_files(top, {"forced.log": "forced", "ignored.log": "ignored"})
        run_git(top, "add", "--force", "forced.log")
        run_git(top, "tag", "-a", "-m", "tag", "v1")
        make_partial(top)
    run_git(project, "init", "--quiet", "--bare", "bare.git")
    write_files(project, {"node_modules/x.js": "x", ".worktreeinclude": "ignored.log\n"})
    write_files(project, {"a.txt": "changed\n"})
    return project


def make_partial(top: Path) -> None:
    """Have git read an ignore file of the index whose content it must fetch."""
    blob = run_git(top, "rev-parse", ":.gitignore").strip()
    run_git(top, "update-index", "--skip-worktree", ".gitignore")
    (top / ".gitignore").unlink()
    objects = top / ".git/objects"
    (objects / blob[:2] / blob[2:]).unlink()


def list_git_folders(project: Path) -> list[Path]:
    """Return the git folders of a project of `make_project`."""
    git = project / ".git"
    return [git, git / "modules/library", project / "nested/.git", project / "bare.git"]


def run_plain_git(folder: Path, *arguments: str) -> None:
    """Run git as a user does whose configuration allows all; its result does not matter."""
    command = ["git", "-c", "safe.directory=*", *arguments]
    stopped = subprocess.TimeoutExpired
    try:
        subprocess.run(
            command, cwd=folder, env=ENVIRONMENT, capture_output=True, timeout=10, check=False
        )
    except stopped:
        return


def exercise(source: Path, folder: Path, *, is_short: bool = False) -> list[str]:
    """Make every call of git that mudroom makes for a source. Returns the errors.

    Arguments:
        folder: for the stores. is_short: true for one child, without a merge and a machine.
    """
    errors: list[str] = []
    session = IsolatedWorkspaces(str(folder / "session"), str(source), str(folder / "home"))
    require_git(str(source))
    try:
        _exercise(source, session, folder, is_short=is_short)
    except WorkspaceError as error:
        errors.append(str(error))
    return errors


def _exercise(source: Path, session: IsolatedWorkspaces, folder: Path, *, is_short: bool) -> None:
    stored = session.store_present("")
    describe_source(session.store)
    for run_id, same_path in (("1.1.1", True), ("1.1.2", False)):
        child = session.open(run_id, "", same_path=same_path)
        write_files(Path(child.files.folder), {f"of {run_id}": "x", "a.txt": f"{run_id}\n"})
        work = session.store_work(run_id)
        session.store.read_difference(work.base, work.tree)
        if is_short:
            return
    write_files(source, {"a.txt": "of the user\n", "new.txt": "n"})
    session.plan_merge("", work)
    node = NodeWorkspaces(
        str(folder / "node"), str(source), str(folder / "other"), DirectCarrier(session)
    )
    with node.open_snapshot(stored.tree, threading.Event(), same_path=False) as snapshot:
        assert os.path.isdir(snapshot.files.folder)
