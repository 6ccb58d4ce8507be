"""Work of a child lands whole or not at all, whichever of its files cannot be written."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.workspaces.git_projects import make_repository
from tests.workspaces.test_isolated_children import get_results, run_children, run_command

OLD = {
    "edited.txt": "old\n",
    "deep/edited.txt": "old\n",
    "removed.txt": "old\n",
    "deep/removed.txt": "old\n",
    "script.sh": "echo\n",
}
WORK = (
    "echo new | tee edited.txt deep/edited.txt > added.txt; rm removed.txt deep/removed.txt; "
    "mkdir -p fresh/folder; echo new > fresh/folder/added.txt; chmod +x script.sh; "
    "rm link; ln -s deep link; ln -s edited.txt new-link"
)


def make_project(folder: Path) -> Path:
    project = make_repository(folder, dict(OLD))
    (project / "link").symlink_to("edited.txt")
    return project


def describe_folder(folder: Path) -> dict[str, tuple[str, int]]:
    """Return what is below a folder, without the state of git: content and mode by path."""
    found: dict[str, tuple[str, int]] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if name.split("/")[0] == ".git":
            continue
        mode = stat.S_IMODE(path.lstat().st_mode)
        if path.is_symlink():
            found[name] = (f"-> {os.readlink(path)}", 0)
        else:
            found[name] = ("/" if path.is_dir() else path.read_text(), mode)
    return found


@contextmanager
def immutable(path: Path) -> Generator[None]:
    """Make a file or a folder immutable, even for root."""
    result = subprocess.run(["chattr", "+i", path], capture_output=True, check=False)
    if result.returncode:
        pytest.skip("the file system or the user cannot make files immutable")
    try:
        yield
    finally:
        subprocess.run(["chattr", "-i", path], check=True)


@pytest.mark.parametrize(
    "name", ["edited.txt", "deep/edited.txt", "removed.txt", "script.sh", "deep"]
)
async def test_nothing_lands_if_one_file_is_immutable(tmp_path: Path, name: str) -> None:
    project = make_project(tmp_path / "project")
    before = describe_folder(project)
    with immutable(project / name):
        report, model = await run_children(project, {"one": run_command(WORK)})
    assert describe_folder(project) == before
    (result,) = get_results(model)
    assert "[merge: not done: " in result and name in result and "chattr -i" in result
    assert ".. " not in result
    assert report.files_changed == ()
