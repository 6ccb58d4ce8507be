"""Writes that replace a file only if it is as expected, also while a user saves it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mudroom._adapters.workspaces.shared import SharedWorkspace
from mudroom._core.ports import FileChangedError, LinkTarget
from mudroom._engine.file_writes import hash_present

Action = Callable[[Path], object]


def replace_file(path: Path) -> None:
    new = path.with_name("new")
    new.write_text("user")
    new.rename(path)


@pytest.fixture
def workspace(tmp_path: Path) -> SharedWorkspace:
    (tmp_path / "a.txt").write_text("old")
    return SharedWorkspace(str(tmp_path))


class UserBetween:
    """A check that lets the user write the file after it has seen the old content."""

    def __init__(self, path: Path, expected: bytes | None, action: Action) -> None:
        self._path = path
        self._expected = expected
        self._action: Action | None = action

    def __call__(self, data: bytes | None) -> bool:
        if self._action:
            self._action(self._path)
            self._action = None
        return data == self._expected


ACTIONS: dict[str, Action] = {
    "in place": lambda path: path.write_text("user"),
    "by a rename": replace_file,
}


@pytest.mark.parametrize("name", ACTIONS)
def test_a_file_that_a_user_saves_during_a_write_stays(
    tmp_path: Path, workspace: SharedWorkspace, name: str
) -> None:
    check = UserBetween(tmp_path / "a.txt", b"old", ACTIONS[name])
    with pytest.raises(FileChangedError):
        workspace.write("a.txt", b"merged", check=check)
    assert (tmp_path / "a.txt").read_text() == "user"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_a_file_that_a_user_makes_or_removes_during_a_write_is_as_the_user_has_it(
    tmp_path: Path, workspace: SharedWorkspace
) -> None:
    check = UserBetween(tmp_path / "b.txt", None, lambda path: path.write_text("user"))
    with pytest.raises(FileChangedError):
        workspace.write("b.txt", b"merged", check=check)
    assert (tmp_path / "b.txt").read_text() == "user"
    with pytest.raises(FileChangedError):
        workspace.write(
            "a.txt", b"merged", check=UserBetween(tmp_path / "a.txt", b"old", Path.unlink)
        )
    assert [path.name for path in tmp_path.iterdir()] == ["b.txt"]


def test_a_file_that_is_not_as_expected_is_not_removed(
    tmp_path: Path, workspace: SharedWorkspace
) -> None:
    with pytest.raises(FileChangedError):
        workspace.remove("a.txt", check=lambda data: data == b"other")
    assert (tmp_path / "a.txt").read_text() == "old"
    workspace.remove("a.txt", check=lambda data: data == b"old")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_as_expected_is_written(tmp_path: Path, workspace: SharedWorkspace) -> None:
    assert not workspace.write("a.txt", b"new", check=lambda data: data == b"old", mode=0o755)
    assert workspace.write("deep/b.txt", b"new", check=lambda data: data is None)
    assert (tmp_path / "a.txt").read_text() == "new"
    assert (tmp_path / "a.txt").stat().st_mode & 0o777 == 0o755
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "deep"]


def test_a_checked_write_replaces_a_link_and_leaves_its_target(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("target\n")
    link = tmp_path / "link"
    link.symlink_to("target")
    folder = SharedWorkspace(str(tmp_path))
    checked: list[bytes | None] = []

    def check(data: bytes | None) -> bool:
        checked.append(data)
        return isinstance(data, LinkTarget)

    folder.write("link", b"file\n", mode=0o100644, check=check)
    assert (link.is_symlink(), link.read_text()) == (False, "file\n")
    assert checked[0] == b"target"
    with pytest.raises(FileChangedError):
        folder.write("link", b"other", mode=0o120000, check=check)
    folder.write("link", b"other", mode=0o120000)
    assert os.readlink(link) == "other"
    assert (tmp_path / "target").read_text() == "target\n"
    assert folder.read_link("link") == b"other"
    assert folder.read_link("target") is None
    assert folder.read_link("missing/link") is None


def test_the_hash_of_a_link_is_that_of_its_path(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("text")
    (tmp_path / "link").symlink_to("a")
    folder = SharedWorkspace(str(tmp_path))
    of_link = hash_present(folder, "link", "link:")
    assert of_link.startswith("link:")
    assert hash_present(folder, "link", "") == hash_present(folder, "a", "")
    assert hash_present(folder, "a", of_link) == hash_present(folder, "a", "")
