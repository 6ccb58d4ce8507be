"""Merges of trees, and reports of files that several runs changed."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest
from tests.workspaces.git_projects import (
    check_out_source,
    make_repository,
    open_store,
    read_files,
    write_files,
)

from mudroom._adapters.workspaces.isolated.checkout import check_out
from mudroom._adapters.workspaces.isolated.git_store import GitStore
from mudroom._adapters.workspaces.isolated.kept_work import find_overlaps, match_lines
from mudroom._adapters.workspaces.isolated.merge import merge_trees
from mudroom._core.runs import Work

LINES = [f"line {number}\n" for number in range(200)]


def change_lines(*numbers: int, by: str) -> str:
    """Return the text of LINES with some lines changed."""
    changed = list(LINES)
    for number in numbers:
        changed[number] = f"{by} changed line {number}\n"
    return "".join(changed)


def make_work(
    store: GitStore, folder: Path, name: str, files: dict[str, str | bytes | None]
) -> Work:
    """Return the work of a run that writes files, or removes those that are None."""
    base, checkout = check_out_source(store, folder, name)
    place = Path(checkout.files.folder)
    for path in [path for path, content in files.items() if content is None]:
        (place / path).unlink()
    write_files(place, {path: text for path, text in files.items() if text is not None})
    return Work(base, store.store_files(checkout.files, name).tree)


def read_tree(store: GitStore, tree: str, folder: Path) -> dict[str, bytes]:
    """Return the files of a tree."""
    checkout = check_out(store, tree, str(folder / f"tree-{tree}"), f"tree-{tree}", same_path=False)
    return read_files(Path(checkout.files.folder))


def test_changes_of_one_line_are_a_conflict_with_three_sides(tmp_path: Path) -> None:
    source = make_repository(tmp_path / "app", {"a.txt": "".join(LINES)})
    store = open_store(tmp_path, source)
    first, second = (
        make_work(store, tmp_path, name, {"a.txt": change_lines(7, by=name), f"{name}.txt": name})
        for name in ("alice", "bob")
    )
    merge = merge_trees(store, first.base, first.tree, second.tree)
    (conflict,) = merge.conflicts
    assert (conflict.path, conflict.kind) == ("a.txt", "both-modified")
    assert store.read(conflict.base).decode() == "".join(LINES)
    assert store.read(conflict.ours).decode() == change_lines(7, by="alice")
    assert store.read(conflict.theirs).decode() == change_lines(7, by="bob")
    text = store.read(conflict.text).decode()
    assert "alice changed line 7" in text
    assert "bob changed line 7" in text
    assert "||||||| " in text


def test_an_overlap_names_runs_lines_and_whether_git_can_merge_it(tmp_path: Path) -> None:
    files = {name: "".join(LINES) for name in ("apart.txt", "same.txt", "alone.txt")}
    store = open_store(tmp_path, make_repository(tmp_path / "app", dict(files)))
    alice = make_work(
        store,
        tmp_path,
        "1.1.1",
        {
            "apart.txt": change_lines(9, 10, by="alice"),
            "same.txt": change_lines(17, 18, by="alice"),
            "alone.txt": change_lines(1, by="alice"),
        },
    )
    bob = make_work(
        store,
        tmp_path,
        "1.2.1",
        {
            "apart.txt": change_lines(99, by="bob"),
            "same.txt": change_lines(18, by="bob"),
            "new.txt": "bob\n",
        },
    )
    apart, same = find_overlaps(store, {"1.1.1": alice, "1.2.1": bob})
    names = {"1.1.1": "alice", "1.2.1": "bob"}
    assert apart.describe(names) == "apart.txt: alice 10-11, bob 100: can be merged"
    assert same.describe(names) == "same.txt: alice 18-19, bob 19: conflict (both-modified)"
    assert msgspec.to_builtins(same) == {
        "path": "same.txt",
        "runs": ("1.1.1", "1.2.1"),
        "kind": "both-modified",
        "lines": {"1.1.1": ((18, 19),), "1.2.1": ((19, 19),)},
    }


def test_works_that_change_different_files_do_not_overlap(tmp_path: Path) -> None:
    store = open_store(tmp_path, make_repository(tmp_path / "app", {"a.txt": "a", "b.txt": "b"}))
    works = {
        name: make_work(store, tmp_path, name, {f"{name}.txt": "changed"}) for name in ("a", "b")
    }
    assert find_overlaps(store, works) == []


@pytest.mark.parametrize("seed", range(20))
def test_equal_lines_are_found_in_order(seed: int) -> None:
    draw = random.Random(seed)
    old, new = ([b"%d" % draw.randrange(12) for _ in range(50)] for _ in "ab")
    place = at = 0
    for first, second, count in match_lines(old, new):
        assert first >= place
        assert second >= at
        assert old[first : first + count] == new[second : second + count]
        place, at = first + count, second + count
