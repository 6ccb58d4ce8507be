"""S13: a merge lands whole or not at all, killed at any line, or with any room on the disk.

The short form tries some lines, states of the disk and sizes, MUDROOM_LONG=1 each.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.reliability.conftest import Figure
from tests.workspaces.landing_projects import KeptProject

from mudroom._adapters.workspaces.isolated.kept_work import remove_abandoned

from .killed import LONG

PROGRAM = Path(__file__).with_name("land.py")
PAGE = resource.getpagesize()


class Lander:
    """The program that merges the kept work of a project."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def merge(
        self,
        project: KeptProject,
        *,
        line: int = 0,
        size: int = -1,
        user: int = -1,
        watched: bool = False,
    ) -> dict[str, Any]:
        """Merge; see the program.

        Arguments:
            line: at which to kill, 0 for none. size: of the largest file that can be written.
            user: number of the user who merges; -1 for the present one.
            watched: whether to find the states of the disk.
        """
        order: dict[str, Any] = {
            "home": str(project.home),
            "project": str(project.path),
            "work": project.name,
        }
        order |= {"line": line, "bytes": size, "user": user, "watched": watched}
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture
def lander() -> Generator[Lander]:
    program = Lander()
    yield program
    program.close()


def list_kills(lander: Lander, project: KeptProject, count: int) -> list[int]:
    """Merge, and return the lines at which to kill.

    Returns:
        Lines that have each state of the disk; `count` lines in the short form.
    """
    result = lander.merge(project, watched=LONG)
    lines: int = result["lines"]
    return result["states"] or [*range(1, lines + 1, lines // count)]


def check_whole(project: KeptProject, *, lands: bool | None = None) -> None:
    """Check that all files of the merge landed or none, and that nothing else is there.

    Arguments:
        lands: true if they must have landed, false if not; None allows both.
    """
    present = project.after if lands else project.before
    found = project.describe()
    if lands is None and found == project.after:
        present = project.after
    assert found == present
    landings = project.home / "isolated"
    assert list(landings.glob("*/landings/*")) == []


def check_later_merge(project: KeptProject, lander: Lander) -> None:
    """Check that the next merge lands the work, and make the project as it was."""
    assert lander.merge(project)["error"] == ""
    check_whole(project, lands=True)
    project.restore()


@pytest.mark.timeout(3_000)
def test_s13_killed_at_any_line_a_merge_lands_whole_or_not_at_all(
    tmp_path: Path, lander: Lander, figure: Figure
) -> None:
    project = KeptProject(tmp_path)
    kills = list_kills(lander, project, 14)
    check_whole(project, lands=True)
    project.restore()
    landed = 0
    for line in kills:
        assert lander.merge(project, line=line)["killed"], line
        remove_abandoned(str(project.home))
        check_whole(project)
        landed += project.describe() == project.after
        check_later_merge(project, lander)
    assert 0 < landed < len(kills)
    figure(
        f"merges killed in each state of the disk at {kills[-1]:,} lines",
        f"{len(kills)}, whole or not at all",
    )


@pytest.mark.timeout(3_000)
def test_s13_killed_again_while_it_ends_an_interrupted_landing_a_merge_lands_whole(
    tmp_path: Path, lander: Lander, figure: Figure
) -> None:
    project = KeptProject(tmp_path)
    firsts = list_kills(lander, project, 3)
    project.restore()
    kills = 0
    for number, first in enumerate(firsts):
        lander.merge(project, line=first)
        step = 4 if LONG else 1
        ends = list_kills(lander, project, 2)[number % step :: step]
        project.restore()
        for again in ends:
            assert lander.merge(project, line=first)["killed"]
            assert lander.merge(project, line=again)["killed"]
            remove_abandoned(str(project.home))
            check_whole(project)
            check_later_merge(project, lander)
            kills += 1
    figure("landings killed, and killed again while they are ended", f"{kills}, whole")


@pytest.mark.timeout(3_000)
def test_s13_with_any_largest_size_of_a_file_a_merge_lands_whole_or_not_at_all(
    tmp_path: Path, lander: Lander, figure: Figure
) -> None:
    project = KeptProject(tmp_path)
    written: list[int] = lander.merge(project, watched=LONG)["sizes"]
    project.restore()
    largest = 15_000
    near = {each for size in written for each in (size // 2, size - 1, size) if each >= 0}
    sizes = sorted({*near, *range(0, largest, 61 if LONG else 1_300)})
    for size in [*sizes, largest]:
        result = lander.merge(project, size=size)
        assert not result["killed"]
        check_whole(project, lands=not result["error"])
        check_later_merge(project, lander)
    figure("merges with a limit on the size of a file", f"{len(sizes) + 1}, whole or not at all")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount a disk")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


USER = 65_534
"""Number of a user who owns nothing."""


def give_away(folder: Path) -> None:
    """Make a user the owner of a folder and of all below it."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, USER, USER, follow_symlinks=False)


RIGHTS: dict[str, tuple[str, int, str]] = {
    "file of another user": ("script.sh", 0o644, "script.sh is read-only (mode 0644) and belongs"),
    "file in a folder": ("deep/edited.txt", 0o444, "deep/edited.txt is read-only (mode 0444) and"),
    "folder of another user": ("deep", 0o755, "the folder deep is read-only (mode 0755)"),
    "folder in one that goes": (
        "to-file/deep",
        0o755,
        "the folder to-file/deep is read-only (mode 0755)",
    ),
    "top of another user": (".", 0o755, "the folder . is read-only (mode 0755)"),
    "edited in a sticky folder": ("edited.txt", 0o666, "edited.txt belongs to another user"),
    "removed in a sticky folder": ("removed.txt", 0o666, "removed.txt belongs to another user"),
}


@pytest.mark.parametrize("name", RIGHTS)
def test_s13_a_user_without_the_rights_for_one_file_lands_nothing(
    tmp_path: Path, lander: Lander, name: str
) -> None:
    if os.geteuid():
        pytest.skip("only root can give files to another user")
    path, mode, reason = RIGHTS[name]
    project = KeptProject(tmp_path)
    for folder in (project.home, project.path):
        give_away(folder)
    tmp_path.chmod(0o755)
    if "sticky" in name:
        os.chown(project.path, 0, 0)
        project.path.chmod(0o1777)
    target = project.path / path
    os.chown(target, 0, 0)
    target.chmod(mode)
    before = project.describe()
    error = lander.merge(project, user=USER)["error"]
    assert reason in error and ("sticky" in error) == ("sticky" in name)
    assert project.describe() == before
    os.chown(target, USER, USER)
    target.chmod(0o755 if target.is_dir() else 0o644)
    assert lander.merge(project, user=USER)["error"] == ""


def fill_disk(folder: Path, *, pages: int) -> None:
    """Write a file that leaves a number of pages free."""
    free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
    (folder / "filler").write_bytes(b"x" * (free - pages * PAGE))


@pytest.mark.timeout(3_000)
def test_s13_with_any_room_on_the_disk_a_merge_lands_whole_or_not_at_all(
    tmp_path: Path, disk: Path, lander: Lander, figure: Figure
) -> None:
    project = KeptProject(tmp_path, disk / "project")
    ends: list[bool] = []
    for pages in range(0, 24, 1 if LONG else 4):
        fill_disk(disk, pages=pages)
        result = lander.merge(project)
        (disk / "filler").unlink()
        check_whole(project, lands=not result["error"])
        if result["error"]:
            assert "the disk is full. Free some space." in result["error"]
        ends.append(not result["error"])
        check_later_merge(project, lander)
    assert ends == sorted(ends) and {*ends} == {True, False}
    figure("merges on a disk that is nearly full", f"{len(ends)}, whole or not at all")


Change = Callable[[KeptProject], None]


def remove_staged(project: KeptProject) -> None:
    for path in map(Path, project.temporary_files):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def edit_others(project: KeptProject) -> None:
    (project.path / "of-the-user.txt").write_text("user\n")


CHANGES: dict[str, Change] = {"git clean": remove_staged, "another file": edit_others}


@pytest.mark.timeout(3_000)
@pytest.mark.parametrize("name", CHANGES)
def test_s13_after_a_kill_and_a_change_by_the_user_a_merge_lands_whole_or_not_at_all(
    tmp_path: Path, lander: Lander, name: str
) -> None:
    project = KeptProject(tmp_path)
    kills = list_kills(lander, project, 9)
    project.restore()
    for line in kills:
        lander.merge(project, line=line)
        CHANGES[name](project)
        remove_abandoned(str(project.home))
        (project.path / "of-the-user.txt").unlink(missing_ok=True)
        check_whole(project)
        check_later_merge(project, lander)
