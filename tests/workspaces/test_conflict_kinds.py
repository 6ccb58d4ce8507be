"""Conflicts of every kind, in both orders: open until the child decides, and counted from trees."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.long_form import count_examples
from tests.workspaces.git_projects import make_repository, read_files

from mudroom._adapters.workspaces.isolated.workspaces import IsolatedWorkspaces
from mudroom._core.agents import WorkspaceKind, WorkspaceSpec
from mudroom._core.ports import MergeChoice, MergePlan
from mudroom._core.runs import Work
from mudroom._engine.changes.merged_files import write_merged_files
from mudroom._session.environments import IsolatedFiles

TEXT = "".join(f"line {number}\n" for number in range(30))
UTF16 = TEXT.encode("utf-16")
FILES: dict[str, str | bytes] = {
    "text": TEXT,
    "binary": b"\0" + bytes(range(200)),
    "wide": UTF16,
    "keep": "keep\n",
    "sub/inner": TEXT,
}
Change = Callable[[Path], None]


def write(name: str, content: str | bytes) -> Change:
    def change(folder: Path) -> None:
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)

    return change


def remove(name: str) -> Change:
    return lambda folder: (folder / name).unlink()


def move(name: str, new: str) -> Change:
    def change(folder: Path) -> None:
        (folder / name).rename(folder / new)

    return change


def link(name: str, target: str) -> Change:
    def change(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(target)

    return change


def replace_by_folder(name: str) -> Change:
    def change(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        write(f"{name}/inner", "in the folder\n")(folder)

    return change


def make_executable(name: str, content: str) -> Change:
    def change(folder: Path) -> None:
        write(name, content)(folder)
        (folder / name).chmod(0o755)

    return change


def edit(by: str, name: str = "text") -> Change:
    return write(name, TEXT.replace("line 5\n", f"{by}\n"))


KINDS: dict[str, tuple[str, Change, Change]] = {
    "text": ("both-modified", edit("one"), edit("two")),
    "nested": ("both-modified", edit("one", "sub/inner"), edit("two", "sub/inner")),
    "binary": ("binary", write("binary", b"\0one"), write("binary", b"\0two")),
    "UTF-16": (
        "binary",
        write("wide", TEXT.replace("line 5", "one").encode("utf-16")),
        write("wide", TEXT.replace("line 5", "two").encode("utf-16")),
    ),
    "rename and rename": ("renamed", move("text", "one"), move("text", "two")),
    "links": ("both-added", link("link", "keep"), link("link", "text")),
    "added texts": ("both-added", write("new", "one\n"), write("new", "two\n")),
    "added binary files": ("binary", write("new", b"\0one"), write("new", b"\0two")),
    "edit and delete": ("modified-deleted", edit("one"), remove("text")),
    "edit and move": ("type", edit("one"), link("text", "keep")),
    "rename and delete": ("renamed", move("text", "one"), remove("text")),
    "link and file": ("type", link("new", "keep"), write("new", "a file\n")),
    "modes": ("both-added", make_executable("new", "same\n"), write("new", "same\n")),
    "file and folder": ("file-folder", write("new", "a file\n"), replace_by_folder("new")),
    "edit and folder": ("file-folder", edit("one"), replace_by_folder("text")),
}
"""The kind that is told, and what the two do."""
WITH_MARKS = ("text", "nested", "added texts")
"""Conflicts of which the child's folder has both versions, between marks."""
ALIKE = list(KINDS)[:8]
"""Kinds in which both do the same, so that their order counts for nothing."""
CASES = [
    (name, order)
    for name in KINDS
    for order in (1, -1)
    if order > 0 or name not in ALIKE or count_examples(0, 1)
]


class Pair:
    """Two children of one folder; the work of the second has come back to it.

    Attributes:
        plan: of the merge that had conflicts. spec: of the run that has its work back.
    """

    def __init__(self, folder: Path, first: Change, second: Change) -> None:
        self.source = make_repository(folder / "project", FILES)
        make_repository(self.source / "sub", {})
        self.workspaces = IsolatedWorkspaces(
            str(folder / "state"), str(self.source), str(folder / "home")
        )
        self.trees = IsolatedFiles(lambda: self.workspaces, "")
        works: list[Work] = []
        for name, change in (("1.1.1", first), ("1.1.2", second)):
            files = self.workspaces.open(name, "", same_path=False).files
            change(Path(files.folder))
        works = [self.workspaces.store_work(name) for name in ("1.1.1", "1.1.2")]
        self.second = works[1]
        assert self.merge(works[0]).files
        self.before = read_tree(self.source)
        self.plan = self.merge(self.second)
        self.spec = WorkspaceSpec(
            WorkspaceKind.ISOLATED,
            base=self.plan.base,
            tree=self.plan.tree,
            own=self.plan.own,
            conflicts=tuple(each.file for each in self.plan.conflicts),
        )

    def merge(self, work: Work, choice: MergeChoice | None = None) -> MergePlan:
        """Merge work into the folder, or return the plan that says why not."""
        plan = self.trees.plan_merge(work, choice=choice or MergeChoice())
        if not plan.conflicts:
            write_merged_files(plan, self.trees)
        return plan

    def report_again(self, name: str, change: Change | None = None) -> Work:
        """Return the work of a run that had its work back."""
        folder = self.workspaces.open(name, "", start=self.spec, same_path=False)
        if change:
            change(Path(folder.files.folder))
        return self.workspaces.store_work(name)

    def resolve_all(self, name: str, side: str) -> MergePlan:
        """Merge the work of a run that decides each conflict for one side."""
        work = self.report_again(name)
        paths = {each.path: side for each in work.conflicts}
        return self.merge(self.workspaces.resolve(name, work, paths))


def read_tree(folder: Path) -> dict[str, tuple[bytes, bool]]:
    """Return content and execute bit of all files."""
    return {
        name: (data, os.access(folder / name, os.X_OK) and not (folder / name).is_symlink())
        for name, data in read_files(folder).items()
    }


@pytest.mark.parametrize(("name", "order"), CASES)
def test_each_kind_stays_open_until_the_child_decides(
    tmp_path: Path, name: str, order: int
) -> None:
    kind, *changes = KINDS[name]
    pair = Pair(tmp_path, *changes[::order])
    assert {each.kind for each in pair.plan.conflicts} == {kind}
    for conflict in pair.plan.conflicts:
        assert (conflict.version == "both") == (name in WITH_MARKS)
        if name in WITH_MARKS:
            text = pair.workspaces.store.read(conflict.text)
            assert b"<<<<<<< the parent's version" in text

    only_reported = pair.report_again("1.1.2~2")
    assert {each.path for each in only_reported.conflicts} == {
        each.path for each in pair.plan.conflicts
    }
    again = pair.merge(only_reported)
    assert [(each.path, each.kind) for each in again.conflicts] == [
        (each.path, each.kind) for each in pair.plan.conflicts
    ]
    assert read_tree(pair.source) == pair.before

    pair.spec = WorkspaceSpec(
        base=again.base,
        tree=again.tree,
        own=again.own,
        conflicts=tuple(each.file for each in again.conflicts),
    )
    assert pair.report_again("1.1.2~3").conflicts, "a second return lost the conflict"

    theirs = pair.resolve_all("1.1.2~4", "theirs")
    assert not theirs.conflicts
    assert read_tree(pair.source) == pair.before

    mine = pair.resolve_all("1.1.2~5", "mine")
    assert not mine.conflicts
    paths = {path for each in pair.plan.conflicts for path in each.paths}
    own = read_tree_of(pair, pair.second.tree)
    expected = {path: each for path, each in pair.before.items() if not _is_below(path, paths)}
    expected |= {path: each for path, each in own.items() if _is_below(path, paths)}
    assert read_tree(pair.source) == expected


def _is_below(path: str, tops: set[str]) -> bool:
    return any(path == top or path.startswith(f"{top}/") for top in tops)


def read_tree_of(pair: Pair, tree: str) -> dict[str, tuple[bytes, bool]]:
    store = pair.workspaces.store
    return {
        path: (store.read(entry.id), entry.mode == 0o100755)
        for path, entry in store.list_entries(tree).items()
    }


@pytest.mark.parametrize(("name", "order"), CASES[:: count_examples(3, 1)])
def test_a_file_that_the_child_writes_is_resolved(tmp_path: Path, name: str, order: int) -> None:
    pair = Pair(tmp_path, *KINDS[name][1:][::order])

    def resolve(folder: Path) -> None:
        for conflict in pair.plan.conflicts:
            for path in conflict.paths:
                place = folder / path
                if place.is_symlink() or place.is_file():
                    place.unlink()
                elif place.is_dir() and (pair.source / path).is_file():
                    shutil.rmtree(place)
        write("resolved", "both\n")(folder)

    work = pair.report_again("1.1.2~2", resolve)
    assert work.conflicts == ()
    plan = pair.merge(work)
    assert not plan.conflicts
    assert (pair.source / "resolved").read_text() == "both\n"
    for conflict in pair.plan.conflicts:
        assert not any(
            (pair.source / path).is_file() or (pair.source / path).is_symlink()
            for path in conflict.paths
        )
