"""A project, and work of a child that changes it in every way in which a merge changes files."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.workspaces.git_projects import make_repository

from mudroom._adapters.workspaces.isolated.workspaces import IsolatedWorkspaces

RUN = "1.1.1"
SESSION = "session-1"
PRIVATE = 0o640
OLD: dict[str, str | bytes] = {
    "edited.txt": "old\n",
    "deep/edited.txt": "old\n" * 3_000,
    "removed.txt": "old\n",
    "deep/removed.txt": "old\n",
    "script.sh": "echo\n",
    "link": "old\n",
    "to-file/a": "old\n",
    "to-file/deep/b": "old\n",
    "to-folder": "old\n",
    "to-link/a": "old\n",
}
WORK = (
    "echo new > edited.txt; seq 3000 > deep/edited.txt; echo new > added.txt; "
    "rm removed.txt deep/removed.txt; mkdir -p fresh/folder; echo new > fresh/folder/added.txt; "
    "chmod +x script.sh; rm link; ln -s deep link; rm old-link; ln -s edited.txt new-link; "
    "rm -r to-file; echo new > to-file; rm to-folder; mkdir -p to-folder/deep; "
    "echo new > to-folder/a; echo new > to-folder/deep/b; rm -r to-link; ln -s deep to-link"
)

Entries = dict[str, tuple[str, int]]


def make_project(folder: Path) -> Path:
    """Make the folder of the user."""
    project = make_repository(folder, OLD)
    (project / "old-link").symlink_to("edited.txt")
    (project / "edited.txt").chmod(PRIVATE)
    return project


def describe_folder(folder: Path) -> Entries:
    """Return what is below a folder, without the state of git: content and mode by path."""
    found: Entries = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if name.split("/")[0] == ".git":
            continue
        if path.is_symlink():
            found[name] = (f"-> {os.readlink(path)}", 0)
        else:
            mode = stat.S_IMODE(path.stat().st_mode)
            found[name] = (
                "/" if path.is_dir() else path.read_text() if path.is_file() else "a pipe",
                mode,
            )
    return found


class KeptProject:
    """A project with kept work, again and again as it was before the merge.

    Attributes:
        before, after: the files before the merge and after it.
    """

    def __init__(self, folder: Path, project: Path | None = None) -> None:
        self.home = folder / "home"
        self.path = make_project(project or folder / "project")
        self.before = describe_folder(self.path)
        self._copy = folder / "copy"
        shutil.copytree(self.path, self._copy, symlinks=True)
        workspaces = self.open_workspaces()
        child = workspaces.open(RUN, "", same_path=False).files.folder
        subprocess.run(["sh", "-ec", WORK], cwd=child, check=True)
        workspaces.store_work(RUN)
        self.after = describe_folder(Path(child))
        self.after["edited.txt"] = ("new\n", PRIVATE)
        workspaces.remove(RUN)

    @property
    def name(self) -> str:
        """The id of the kept work."""
        return f"{SESSION[:8]}/{RUN}"

    @property
    def temporary_files(self) -> list[str]:
        """Paths of the files that a landing left."""
        return [str(path) for path in self.path.rglob(".mudroom*")]

    def describe(self) -> Entries:
        """Return what is in the project."""
        return describe_folder(self.path)

    def open_workspaces(self) -> IsolatedWorkspaces:
        """Open the isolated workspaces, as a new process does."""
        folder = self.home / "isolated" / SESSION
        return IsolatedWorkspaces(str(folder), str(self.path), str(self.home))

    def restore(self) -> None:
        """Make the project as it was, with work that is not merged."""
        for path in self.path.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        shutil.copytree(self._copy, self.path, symlinks=True, dirs_exist_ok=True)
        for mark in (self.home / "isolated" / SESSION).glob("store.git/kept/*.merged"):
            mark.unlink()


@contextmanager
def make_immutable(path: Path) -> Generator[None]:
    """Make a file or a folder immutable, even for root; skip the test where that is impossible."""
    set_immutable(path)
    try:
        yield
    finally:
        subprocess.run(["chattr", "-i", path], check=True)


def require_immutable_files(path: Path) -> None:
    """Skip the test if a file or a folder cannot be made immutable."""
    with make_immutable(path):
        return


def set_immutable(path: Path) -> None:
    """Make a file or a folder immutable; see `make_immutable`."""
    if not shutil.which("chattr"):
        pytest.skip("chattr is not installed")
    if subprocess.run(["chattr", "+i", path], capture_output=True, check=False).returncode:
        pytest.skip("the file system or the user cannot make files immutable")
