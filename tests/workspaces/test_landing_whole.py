"""Work of a child lands whole or not at all, whichever of its files cannot be written."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from tests.long_form import count_examples
from tests.workspaces.landing_projects import (
    PRIVATE,
    RUN,
    SESSION,
    WORK,
    Entries,
    KeptProject,
    describe_folder,
    make_immutable,
    make_project,
    require_immutable_files,
    set_immutable,
)
from tests.workspaces.test_isolated_children import get_results, run_children, run_command

from mudroom._adapters.workspaces import _atomic_write as checked_rename
from mudroom._adapters.workspaces.isolated.git_store import GitStore
from mudroom._adapters.workspaces.isolated.kept_work import remove_abandoned
from mudroom._adapters.workspaces.isolated.landing.land import Landing
from mudroom._adapters.workspaces.isolated.workspaces import IsolatedWorkspaces
from mudroom._core.ports import FileChangedError, MergePlan
from mudroom.errors import WorkspaceError

CHANGED = [
    "added.txt",
    "deep/edited.txt",
    "deep/removed.txt",
    "edited.txt",
    "fresh/folder/added.txt",
    "link",
    "new-link",
    "old-link",
    "removed.txt",
    "script.sh",
]
PRESENT = [name for name in CHANGED if name[:3] not in ("add", "fre", "new")]
KINDS = ["to-file", "to-folder", "to-link"]
"""Entries that a file, a folder or a link takes the place of one of another kind at."""
INNER = ["to-file/a", "to-file/deep/b", "to-folder/a", "to-folder/deep/b", "to-link/a"]
FILES = [name for name in PRESENT if name != "old-link"]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> KeptProject:
    return KeptProject(tmp_path_factory.mktemp("kept"))


@pytest.fixture
def project(kept: KeptProject) -> KeptProject:
    kept.restore()
    return kept


def plan_merge(project: KeptProject) -> tuple[IsolatedWorkspaces, MergePlan]:
    workspaces = project.open_workspaces()
    work = workspaces.find_stored(RUN)
    assert work
    plan = workspaces.plan_merge("", work)
    assert sorted(file.path for file in plan.files) == sorted([*CHANGED, *KINDS, *INNER])
    return workspaces, plan


def land(project: KeptProject, on_staged: Callable[[], object] = lambda: None) -> None:
    workspaces, plan = plan_merge(project)
    workspaces.land("", plan.files, on_staged)


def check_then_land(project: KeptProject, expected: Entries) -> None:
    """Check that nothing landed, and that the work lands later."""
    assert project.describe() == expected
    assert project.temporary_files == []
    project.restore()
    land(project)
    assert project.describe() == project.after


@pytest.mark.parametrize("name", ["edited.txt", "deep"])
async def test_the_parent_reads_why_nothing_landed(tmp_path: Path, name: str) -> None:
    folder = make_project(tmp_path / "project")
    before = describe_folder(folder)
    with make_immutable(folder / name):
        report, model = await run_children(folder, {"one": run_command(WORK)})
    assert describe_folder(folder) == before
    assert report.files_changed == ()
    (result,) = get_results(model)
    assert f"{name} is immutable (chattr +i). If it should change, remove the attribute" in result
    assert "`chattr -i` first. The work is kept as run 1.1.1. The user can merge it" in result
    assert "`mudroom workspaces apply " in result


@pytest.mark.parametrize("name", [*FILES, *KINDS, "to-file/deep", "to-file/a", "deep", "."])
def test_nothing_lands_if_a_file_or_folder_is_immutable(project: KeptProject, name: str) -> None:
    with (
        make_immutable(project.path / name),
        pytest.raises(WorkspaceError, match="is immutable"),
    ):
        land(project)
    check_then_land(project, project.before)


@pytest.mark.parametrize("name", [*FILES, *KINDS, "deep", "."][:: count_examples(2, 1)])
def test_files_that_have_their_names_are_put_back_if_a_later_one_becomes_immutable(
    project: KeptProject, name: str
) -> None:
    inodes = {path: path.lstat().st_ino for path in project.path.rglob("*")}
    path = project.path / name
    workspaces, plan = plan_merge(project)
    require_immutable_files(path)
    try:
        with pytest.raises(WorkspaceError, match="chattr"):
            workspaces.land("", plan.files, lambda: set_immutable(path))
    finally:
        subprocess.run(["chattr", "-i", path], check=True)
    workspaces.settle("")  # with an immutable folder, the staged files stay until now
    assert project.describe() in (project.before, project.after)
    if project.describe() == project.before:
        assert inodes == {path: path.lstat().st_ino for path in project.path.rglob("*")}
        check_then_land(project, project.before)


SAVES: dict[str, Callable[[Path], object]] = {
    "saved": lambda path: path.write_text("user\n"),
    "removed": lambda path: path.unlink(),
    "a folder": lambda path: (path.unlink(missing_ok=True), path.mkdir()),
    "a link": lambda path: (path.unlink(missing_ok=True), path.symlink_to("user")),
    # What the old link leads to, as the text of a file: it is another entry.
    "text of a link": lambda path: (path.unlink(missing_ok=True), path.write_text("edited.txt")),
}


@pytest.mark.parametrize(
    ("name", "how"),
    [
        (name, how)
        for (place, name), (number, how) in product(enumerate(CHANGED), enumerate(SAVES))
        # The merge removes the old link, too.
        if (how != "removed" or name in FILES) and count_examples((place + number + 1) % 2, 1)
    ],
)
def test_what_the_user_saves_after_the_staging_stays_and_nothing_lands(
    project: KeptProject, name: str, how: str
) -> None:
    path = project.path / name
    expected: list[Entries] = []

    def save() -> None:
        if name == "old-link" and how == "saved":
            path.unlink()
        SAVES[how](path)
        folder = project.describe()
        expected.append({path: facts for path, facts in folder.items() if ".mudroom" not in path})

    with pytest.raises(FileChangedError, match=name):
        land(project, save)
    if not name.startswith("fresh"):  # the folders that were made for the merge go again
        expected[0].pop("fresh/folder")
        expected[0].pop("fresh")
    check_then_land(project, expected[0])


SAVES_IN_PLACES: dict[str, Callable[[Path], object]] = {
    "to-file: a file is saved": lambda path: (path / "to-file/a").write_text("user\n"),
    "to-file: a file is made": lambda path: (path / "to-file/new").write_text("user\n"),
    "to-file: a file is removed": lambda path: (path / "to-file/deep/b").unlink(),
    "to-file: a pipe": lambda path: os.mkfifo(path / "to-file/deep/pipe"),
    "to-file: a link": lambda path: replace(path / "to-file/a", lambda it: it.symlink_to("b")),
    "to-file: moved": lambda path: (path / "to-file").rename(path / "moved"),
    "to-file: a file": lambda path: replace(path / "to-file", lambda it: it.write_text("user\n")),
    "to-folder: saved": lambda path: (path / "to-folder").write_text("user\n"),
    "to-folder: removed": lambda path: (path / "to-folder").unlink(),
    "to-folder: a folder": lambda path: replace(path / "to-folder", Path.mkdir),
    "to-folder: a pipe": lambda path: replace(path / "to-folder", os.mkfifo),
    "to-link: a file is made": lambda path: (path / "to-link/new").write_text("user\n"),
    "to-link: a link": lambda path: replace(path / "to-link", lambda it: it.symlink_to("user")),
}


def replace(path: Path, make: Callable[[Path], object]) -> None:
    """Put another entry in the place of a file or a folder."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    make(path)


@pytest.mark.parametrize("how", SAVES_IN_PLACES)
def test_what_the_user_does_where_a_kind_changes_stays_and_nothing_lands(
    project: KeptProject, how: str
) -> None:
    name = how.partition(":")[0]
    _, looks = land_beside_user(project, 0, lambda: None)
    ends: set[bool] = set()

    def act() -> None:
        is_new = (project.path / name).is_dir() != (name in ("to-file", "to-link"))
        with suppress(OSError):  # what it is about may be of another kind by now
            SAVES_IN_PLACES[how](project.path)
            ends.add(is_new)

    for at in range(1, looks + 1, looks // count_examples(8, looks)):
        project.restore()
        ends.clear()
        has_landed, _ = land_beside_user(project, at, act)
        found = project.describe()
        assert project.temporary_files == []
        if ends == {True} and not has_landed:
            continue  # the user changed what was new: there is nothing of the user's to keep
        project.restore()
        if has_landed:
            land(project)
        if ends:
            SAVES_IN_PLACES[how](project.path)
        assert found == project.describe(), at


class ContentsAndUser:
    """The contents of a merge; a user acts each time the landing has read a file."""

    def __init__(self, store: GitStore, at: int, act: Callable[[], object]) -> None:
        self.read = store.read
        self.looks = 0
        self._store = store
        self._at = at
        self._act = act

    def find_id(self, data: bytes) -> str:
        self.looks += 1
        if self.looks == self._at:
            self._act()
        return self._store.find_id(data)


plan_once = cache(plan_merge)
"""The plan stays the same each time when a project is restored."""


def land_beside_user(project: KeptProject, at: int, act: Callable[[], object]) -> tuple[bool, int]:
    """Land while a user acts; return whether it landed, and how often files were read."""
    workspaces, plan = plan_once(project)
    contents = ContentsAndUser(workspaces.store, at, act)
    record = project.home / "isolated" / SESSION / "landings" / "source"
    try:
        Landing(str(project.path), record, contents).land(plan.files, lambda: None)
    except WorkspaceError:
        return False, contents.looks
    return True, contents.looks


def write_in_place(path: Path) -> None:
    path.write_text("user\n")


def replace_as_editor(path: Path) -> None:
    new = path.with_name("editor.tmp")
    new.write_text("user\n")
    new.rename(path)


@pytest.mark.parametrize("name", ["edited.txt", "deep/edited.txt", "removed.txt", "added.txt"])
def test_a_user_who_saves_a_file_at_any_moment_of_a_landing_keeps_it(
    project: KeptProject, name: str
) -> None:
    path = project.path / name
    _, looks = land_beside_user(project, 0, lambda: None)
    ends: set[bool] = set()
    for at in range(1, looks + 1, count_examples(3, 1)):
        for save in (replace_as_editor, write_in_place):
            project.restore()
            has_landed, _ = land_beside_user(project, at, partial(save, path))
            ends.add(has_landed)
            found = project.describe()
            assert found.pop(name)[0] == "user\n", at
            others = dict(project.after if has_landed else project.before)
            others.pop(name, None)
            assert found == others, at
    assert False in ends


@pytest.mark.parametrize("can_exchange", [True, False])
def test_an_error_at_any_rename_undoes_those_before_it(
    project: KeptProject, monkeypatch: pytest.MonkeyPatch, *, can_exchange: bool
) -> None:
    if not can_exchange:
        monkeypatch.setattr(checked_rename, "_find_function", lambda: None)
    count = 0
    fails_at = -1

    def fail_once() -> None:
        nonlocal count
        count += 1
        if count == fails_at:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    for module, name in ((checked_rename, "_rename"), (os, "rename"), (os, "link"), (os, "mkdir")):
        monkeypatch.setattr(module, name, partial(run_after, fail_once, getattr(module, name)))
    workspaces, plan = plan_merge(project)
    before = {path: path.lstat().st_ino for path in project.path.rglob("*")}
    for fails_at in range(1, 100, count_examples(4, 1)):
        count = 0
        try:
            Landing(str(project.path), project.home / "landing", workspaces.store).land(
                plan.files, lambda: None
            )
        except WorkspaceError:
            assert project.describe() == project.before, fails_at
            assert before == {path: path.lstat().st_ino for path in project.path.rglob("*")}
        else:
            assert fails_at > len(plan.files) // 2
            break
    assert project.describe() == project.after
    assert project.temporary_files == []


def run_after(
    first: Callable[[], object], then: Callable[..., object], *arguments: Any, **options: Any
) -> object:
    first()
    return then(*arguments, **options)


@pytest.mark.parametrize("how", ["folder", "file"])
def test_what_cannot_be_put_back_is_put_back_or_finished_later(
    project: KeptProject, how: str
) -> None:
    target = project.path / ("." if how == "folder" else "deep/edited.txt")
    require_immutable_files(target)
    _, looks = land_beside_user(project, 0, lambda: None)
    for at in range(len([*CHANGED, *INNER]) + 1, looks + 1, count_examples(4, 1)):
        project.restore()
        try:
            has_landed, _ = land_beside_user(project, at, lambda: set_immutable(target))
        finally:
            subprocess.run(["chattr", "-i", target], check=True)
        project.open_workspaces().settle("")
        found = project.describe()
        assert found == project.after or not has_landed
        assert found in (project.before, project.after)


def test_a_landing_does_not_take_the_mark_of_an_earlier_one_for_its_own(tmp_path: Path) -> None:
    project = KeptProject(tmp_path)
    landings = project.home / "isolated" / SESSION / "landings"
    deep = project.path / "deep"
    require_immutable_files(deep)
    _, looks = land_beside_user(project, 0, lambda: None)
    project.restore()
    try:
        has_landed, _ = land_beside_user(project, looks, lambda: set_immutable(deep))
        assert has_landed
        assert project.describe() != project.after, "the old files cannot be removed"
        assert [path.name for path in landings.iterdir()] == ["source+landed"]
        workspaces = project.open_workspaces()
        child = workspaces.open("1.1.2", "", same_path=False).files.folder
        Path(child, "edited.txt").write_text("again\n")
        plan = workspaces.plan_merge("", workspaces.store_work("1.1.2"))
        marks: list[str] = []
        workspaces.land(
            "", plan.files, lambda: marks.extend(each.name for each in landings.iterdir())
        )
        assert marks == ["source"]
    finally:
        subprocess.run(["chattr", "-i", deep], check=True)
    assert (project.path / "edited.txt").read_text() == "again\n"


def test_the_old_mode_stays_but_for_the_executable_bits(project: KeptProject) -> None:
    (project.path / "script.sh").chmod(PRIVATE)
    land(project)
    assert (project.path / "edited.txt").stat().st_mode & 0o777 == PRIVATE
    assert (project.path / "script.sh").stat().st_mode & 0o777 == 0o750


@pytest.mark.parametrize("fails", [False, True])
def test_a_merge_lands_whole_where_the_system_cannot_exchange_names(
    project: KeptProject, monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    monkeypatch.setattr(checked_rename, "_find_function", lambda: None)
    if not fails:
        land(project)
        assert project.describe() == project.after
        return
    with pytest.raises(FileChangedError):
        land(project, lambda: (project.path / "removed.txt").write_text("user\n"))
    saved = ("user\n", project.before["removed.txt"][1])
    check_then_land(project, {**project.before, "removed.txt": saved})


def test_an_interrupted_landing_in_a_folder_that_is_gone_is_forgotten(tmp_path: Path) -> None:
    project = KeptProject(tmp_path)
    workspaces, plan = plan_merge(project)
    record = project.home / "isolated" / SESSION / "landings" / "source"

    def copy_record() -> None:
        shutil.copy(record, tmp_path)

    workspaces.land("", plan.files, copy_record)
    shutil.copy(tmp_path / "source", record)
    shutil.move(project.path, tmp_path / "moved")
    del workspaces  # it keeps clean-ups away
    remove_abandoned(str(project.home))
    assert not record.exists()
