"""An entry of any kind lands in place of one of any other kind, or is named: nothing is lost."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from tests.long_form import count_examples
from tests.workspaces.change_tool import make_change_tool
from tests.workspaces.git_projects import make_repository, read_files, run_git, write_files
from tests.workspaces.kinds_of_entries import (
    IGNORED,
    KINDS,
    UNSEEN,
    Entry,
    describe_entry,
    replace_entry,
    see_entry,
)

from mudroom import Session, ToolContext
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._adapters.workspaces.isolated.workspaces import IsolatedWorkspaces
from mudroom._cli.interactive.slash_commands.files import restore_files
from mudroom._core.ports import FileChangedError, MergeChoice, MergedFile
from mudroom._core.runs import Work
from mudroom._projections.differences import FileChanges

RUN = "1.1.1"
UNTOUCHED = "untouched"
HIDING = "folder with an ignored file"
Case = tuple[str, str, str]
"""Kinds of one entry: at first, as the child leaves it, and as the user does."""


class Project:
    """A project with an entry for each case. All are changed by one child, and by the user.

    Attributes:
        entries: path by case. work: of the child.
        first, child, user: descriptions of what the three have, by case.
    """

    def __init__(self, folder: Path, cases: Sequence[Case]) -> None:
        self.path = make_repository(folder / "project", {})
        write_files(self.path, {"there/child": "", "there/first": "", ".gitignore": IGNORED})
        self.entries = {case: self.path / f"e{number:03}" for number, case in enumerate(cases)}
        for case, path in self.entries.items():
            KINDS[case[0]](path, "first")
        run_git(self.path, "add", "-A")
        run_git(self.path, "commit", "--quiet", "-m", "all")
        self.workspaces = self.open(folder)
        self.first = self.describe()
        child = Path(self.workspaces.open(RUN, "", same_path=False).files.folder)
        for case, path in self.entries.items():
            if case[1] != UNTOUCHED:
                replace_entry(child / path.name, case[1], "child")
        self.work: Work = self.workspaces.store_work(RUN)
        self.child = {case: see_entry(child / path.name) for case, path in self.entries.items()}
        for case, path in self.entries.items():
            if case[2] != UNTOUCHED:
                replace_entry(path, case[2], "user")
        self.user = self.describe()

    def open(self, folder: Path) -> IsolatedWorkspaces:
        return IsolatedWorkspaces(str(folder / "state"), str(self.path), str(folder / "home"))

    def describe(self) -> dict[Case, Entry]:
        return {case: describe_entry(path) for case, path in self.entries.items()}

    def land_all(self) -> set[str]:
        """Land all that can land; return the names of the entries in conflict."""
        conflicts = self.workspaces.plan_merge("", self.work).conflicts
        left = {each.path.partition("/")[0].partition("~")[0] for each in conflicts}
        choice = MergeChoice("parent", tuple(each.path for each in conflicts))
        files: Sequence[MergedFile] = self.workspaces.plan_merge("", self.work, choice=choice).files
        while True:
            files = [file for file in files if file.path.partition("/")[0] not in left]
            try:
                self.workspaces.land("", files, lambda: None)
            except FileChangedError as change:
                left.add(str(change).partition("/")[0])
                continue
            return left

    @property
    def rests(self) -> list[str]:
        """Paths of temporary files."""
        return [str(path) for path in self.path.rglob(".mudroom*")]


SEEN = [kind for kind in KINDS if kind not in UNSEEN]
ALONE = [
    (before, after, UNTOUCHED)
    for before, after in product(KINDS, KINDS)
    if before != "pipe" and (before != HIDING or after in ("folder", HIDING, *UNSEEN))
]
"""Cases in which nothing is in the way of what the child does."""


def expect_alone(project: Project, case: Case) -> Entry:
    """Return what is there after a landing beside a user who touched nothing."""
    first, after, _ = case
    before, wanted = project.first[case], project.child[case]
    if after == "pipe" and first in SEEN and not isinstance(before, dict):
        return before  # a pipe in place of a file is no removal of the file
    if isinstance(before, dict):
        unseen = {name: before[name] for name in (IGNORED, "in") if name in before}
        if wanted is None or isinstance(wanted, dict):
            return {**(wanted or {}), **unseen} or None
    return wanted


def test_each_kind_takes_the_place_of_each_other(tmp_path: Path) -> None:
    project = Project(tmp_path, ALONE)
    plan = project.workspaces.plan_merge("", project.work)
    assert plan.conflicts == ()
    project.workspaces.land("", plan.files, lambda: None)
    found = project.describe()
    expected = {case: expect_alone(project, case) for case in ALONE}
    assert [case for case in ALONE if found[case] != expected[case]] == []
    assert project.rests == []
    assert project.workspaces.plan_merge("", project.work).files == ()


UNDONE = [case for case in ALONE if HIDING not in case and case[0] not in UNSEEN[1:]]
"""Cases whose first entry a record has whole: no empty folder, no pipe, and nothing ignored."""


def change_entries(project: Project) -> Callable[[ToolContext], None]:
    """Return what changes all entries in the files of a child."""

    def change(context: ToolContext) -> None:
        for case, path in project.entries.items():
            replace_entry(Path(context.workspace.root, path.name), case[1], "child")

    return change


async def test_an_undo_brings_each_kind_back(tmp_path: Path) -> None:
    """A child changes each entry in files of its own, its work lands, and the user undoes it."""
    project = Project(tmp_path, UNDONE)
    changes = FileChanges()

    def answer(request: Request) -> Answer:
        if request.turn:
            return "done"
        is_child = request.prompt == "CHILD"
        return [call("change") if is_child else call("task", prompt="CHILD", isolation="isolated")]

    options: dict[str, Any] = {"home": str(tmp_path / "home"), "environ": {}, "sandbox": "off"}
    options |= {"tools": [make_change_tool(change_entries(project))]}
    async with Session(model=ScriptedModel(answer), cwd=str(project.path), **options) as session:
        session.watch(changes.apply)
        await session.run("go")
        landed = project.describe()
        restore_files(session, changes.list_changes(), [])
    assert [case for case in UNDONE if landed[case] != expect_alone(project, case)] == []
    found = project.describe()
    assert [case for case in UNDONE if found[case] != project.first[case]] == []


def list_beside_user() -> list[Case]:
    """Return cases in which the user changes the entry, or something was in the way at first."""
    cases = product(KINDS, [UNTOUCHED, *KINDS], [UNTOUCHED, *KINDS])
    touched = [case for case in cases if case not in ALONE]
    return touched[:: count_examples(5, 1)]


def test_beside_a_user_each_entry_is_the_childs_or_the_users_and_named(tmp_path: Path) -> None:
    project = Project(tmp_path, list_beside_user())
    left = project.land_all()
    found = project.describe()
    assert project.rests == []
    for case, path in project.entries.items():
        present, users, childs = found[case], project.user[case], project.child[case]
        is_changed = any(each.partition("/")[0] == path.name for each in project.work.files)
        if not is_changed or path.name in left:
            assert present == users, case
        elif childs is None and case[2] != UNTOUCHED:
            # The child removed what was there at first, and the user had replaced it already.
            assert present == users, case
        else:
            assert see_entry(path) == childs, case
    assert left


HARD_NAMES = (
    "n" * 255,
    "new\nline",
    "tab\tand\x1b[31m",
    os.fsdecode(b"caf\xe9"),
    r"back\slash\xe9",
    ":(literal)x",
    "*",
    "-rf",
    " space ",
    "数据",
    "file.old",
)


def test_names_of_any_kind_change_from_file_to_folder_and_back(tmp_path: Path) -> None:
    project = make_repository(tmp_path / "project", {})
    deep = "/".join(["d"] * 190)
    for name in HARD_NAMES:
        (project / name).write_text("first\n")
    write_files(project, {f"to-file/{deep}/x": "first\n", "to-folder": "first\n"})
    workspaces = IsolatedWorkspaces(str(tmp_path / "state"), str(project), str(tmp_path / "home"))
    child = Path(workspaces.open("1.1.1", "", same_path=False).files.folder)
    for name in HARD_NAMES:
        (child / name).unlink()
        inner: dict[str, str | bytes] = dict.fromkeys(HARD_NAMES, "child\n")
        write_files(child / name, inner)
    shutil.rmtree(child / "to-file")
    (child / "to-file").write_text("child\n")
    (child / "to-folder").unlink()
    write_files(child, {f"to-folder/{deep}/x": "child\n"})
    for run in ("1.1.1", "1.1.2"):
        work = workspaces.store_work(run)
        workspaces.land("", workspaces.plan_merge("", work).files, lambda: None)
        assert read_files(project) == read_files(child)
        child = Path(workspaces.open("1.1.2", "", same_path=False).files.folder)
        if run == "1.1.1":
            for name in HARD_NAMES:
                shutil.rmtree(child / name)
                (child / name).write_text("again\n")
    assert (project / HARD_NAMES[0]).read_text() == "again\n"
    assert list(project.glob(".mudroom*")) == []
