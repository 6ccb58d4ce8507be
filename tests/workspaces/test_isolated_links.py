"""Links in isolated work: merged like files, never followed, whole or not at all."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.workspaces.git_projects import make_repository, read_files

from mudroom._adapters.workspaces.isolated.workspaces import IsolatedWorkspaces
from mudroom._adapters.workspaces.shared import SharedWorkspace
from mudroom._core.ports import FileChangedError, LinkTarget
from mudroom._engine.changes.merged_files import ChangedMeanwhileError, write_merged_files
from mudroom._engine.file_writes import hash_present
from mudroom._session.environments import IsolatedFiles

PATHS = ("a", "b", "folder/a", "folder/b", "folder/deep/a")
TARGETS = ("a", "b", "folder/a", "missing", "../a", "../../a", "..", "/etc/passwd", "deep/a")


def choose_entry(draw: random.Random) -> tuple[bool, str] | None:
    """Return a random entry: whether it is a link, and its text; None for no entry."""
    if draw.random() < 0.2:
        return None
    is_link = draw.random() < 0.6
    return is_link, draw.choice(TARGETS) if is_link else f"{draw.randrange(3)}\n"


def set_entry(place: Path, entry: tuple[bool, str] | None) -> None:
    """Make a file or a link, or remove what is there."""
    place.unlink(missing_ok=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    if entry is None:
        return
    is_link, text = entry
    if is_link:
        place.symlink_to(text)
    else:
        place.write_text(text)


def read_entries(folder: Path) -> dict[str, tuple[bool, bytes]]:
    """Return what is at the paths: whether it is a link, and its text."""
    return {path: (folder.joinpath(path).is_symlink(), data) for path, data in _read(folder)}


def _read(folder: Path) -> list[tuple[str, bytes]]:
    return list(read_files(folder).items())


def leads_out(path: str, entry: tuple[bool, bytes]) -> bool:
    """Return whether an entry is a link that leads out of the folder."""
    is_link, target = entry
    place = os.path.normpath(os.path.join("/top", os.path.dirname(path), target.decode()))
    return is_link and not f"{place}/".startswith("/top/")


def merge(project: Path, workspaces: IsolatedWorkspaces, run_id: str) -> bool:
    """Merge the work of a run into the folder of the user. Return whether it could be merged."""
    isolation = IsolatedFiles(lambda: workspaces, "")
    plan = isolation.plan_merge(workspaces.store_work(run_id))
    write_merged_files(plan, isolation)
    return not plan.conflicts


@pytest.mark.parametrize("seed", range(12))
def test_links_and_files_are_merged_by_path(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    project = make_repository(tmp_path / "project", {"a": "first\n"})
    for path in PATHS:
        set_entry(project / path, choose_entry(draw))
    workspaces = IsolatedWorkspaces(str(tmp_path / "store"), str(project), str(tmp_path / "home"))
    child = Path(workspaces.open("1.1.1", "", same_path=False).files.folder)
    base = read_entries(project)
    for path in draw.sample(PATHS, 2):
        set_entry(child / path, choose_entry(draw))
    for path in draw.sample(PATHS, 1):
        set_entry(project / path, choose_entry(draw))
    ours, theirs = read_entries(project), read_entries(child)
    expected = dict(ours)
    is_refused = False
    for path in PATHS:
        before, mine, other = (side.get(path) for side in (base, ours, theirs))
        if other in (before, mine):
            continue
        is_refused |= mine != before or (other is not None and leads_out(path, other))
        expected.pop(path, None)
        if other:
            expected[path] = other
    is_merged = merge(project, workspaces, "1.1.1")
    present = read_entries(project)
    if is_refused:
        assert present == (expected if is_merged else ours)
    else:
        assert is_merged and present == expected
    assert not list(project.rglob(".mudroom*"))


def make_folder(place: Path) -> None:
    """Replace an entry with a folder."""
    place.unlink()
    place.mkdir()


MEANWHILE: dict[str, Callable[[Path], None]] = {
    "another link": lambda place: set_entry(place, (True, "user")),
    "a file with the text of the link": lambda place: set_entry(place, (False, "a")),
    "removed": lambda place: set_entry(place, None),
    "a folder": make_folder,
}


@pytest.mark.parametrize("name", MEANWHILE)
def test_a_link_that_the_user_changes_meanwhile_stays(tmp_path: Path, name: str) -> None:
    project = make_repository(tmp_path / "project", {"a": "text\n"})
    link = project / "link"
    link.symlink_to("a")
    workspaces = IsolatedWorkspaces(str(tmp_path / "store"), str(project), str(tmp_path / "home"))
    child = Path(workspaces.open("1.1.1", "", same_path=False).files.folder)
    set_entry(child / "link", (True, "child"))
    isolation = IsolatedFiles(lambda: workspaces, "")
    plan = isolation.plan_merge(workspaces.store_work("1.1.1"))
    MEANWHILE[name](link)
    before = read_entries(project)
    with pytest.raises(ChangedMeanwhileError):
        write_merged_files(plan, isolation)
    assert read_entries(project) == before


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
