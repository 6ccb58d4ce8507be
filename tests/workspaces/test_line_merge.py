"""Merges without `git merge-tree`: the same results as those of git."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest
from tests.workspaces.git_projects import make_repository, open_store

from mudroom.workspaces.isolated.conflict_marks import BASE, OURS, THEIRS
from mudroom.workspaces.isolated.line_merge import match_lines, merge_lines
from mudroom.workspaces.isolated.merge import merge_trees
from mudroom.workspaces.isolated.tree_merge import merge_entries
from mudroom.workspaces.isolated.trees import REGULAR, TreeEntry


def join(*lines: str) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def merge_with_git(folder: Path, base: bytes, ours: bytes, theirs: bytes) -> tuple[bytes, bool]:
    """Return the merged text of `git merge-file`, and whether it has conflicts."""
    for name, text in (("base", base), ("ours", ours), ("theirs", theirs)):
        (folder / name).write_bytes(text)
    result = subprocess.run(
        ["git", "merge-file", "-p", "--diff3", "ours", "base", "theirs"],
        cwd=folder,
        capture_output=True,
        check=False,
    )
    return result.stdout, result.returncode != 0


def test_changes_of_different_lines_are_merged() -> None:
    base = join(*"abcdefg")
    merge = merge_lines(base, join(*"aBcdefg"), join(*"abcdeFg", "h"))
    assert (merge.text, merge.has_conflicts) == (join(*"aBcdeFg", "h"), False)


def test_changes_of_one_line_are_marked() -> None:
    merge = merge_lines(join(*"abc"), join("a", "ours", "c"), join("a", "theirs", "c"))
    assert merge.has_conflicts
    assert merge.text == join(
        *("a", f"<<<<<<< {OURS}", "ours", f"||||||| {BASE}", "b"),
        *("=======", "theirs", f">>>>>>> {THEIRS}", "c"),
    )


def test_equal_changes_and_texts_without_line_end_are_merged() -> None:
    assert merge_lines(b"a\nb", b"a\nB", b"a\nB").text == b"a\nB"
    merge = merge_lines(b"a\nb", b"a\nours", b"a\ntheirs")
    assert b"\nours\n|||||||" in merge.text
    assert merge.has_conflicts


@pytest.mark.parametrize("seed", range(40))
def test_a_merge_without_conflict_is_that_of_git(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    base = [str(draw.randrange(30 if seed % 2 else 400)) for _ in range(60)]

    def change(lines: list[str]) -> list[str]:
        changed = list(lines)
        for _ in range(draw.randrange(1, 4)):
            place = draw.randrange(len(changed))
            changed[place : place + draw.randrange(3)] = [f"new {draw.random()}"] * draw.randrange(
                3
            )
        return changed

    sides = [join(*base), join(*change(base)), join(*change(base))]
    expected, has_conflicts = merge_with_git(tmp_path, *sides)
    merge = merge_lines(*sides)
    if not has_conflicts and not merge.has_conflicts:
        assert merge.text == expected
    for side in sides[1:]:  # no line that a side added is lost
        added = {line for line in side.splitlines() if line.startswith(b"new")}
        assert added <= set(merge.text.splitlines())


@pytest.mark.parametrize("seed", range(20))
def test_matches_are_in_order_and_equal(seed: int) -> None:
    draw = random.Random(seed)
    old, new = ([b"%d" % draw.randrange(12) for _ in range(50)] for _ in "ab")
    place = at = 0
    for first, second, count in match_lines(old, new):
        assert first >= place
        assert second >= at
        assert old[first : first + count] == new[second : second + count]
        place, at = first + count, second + count


def test_long_texts_of_equal_lines_are_merged_quickly() -> None:
    lines = ["same"] * 4_000
    ours = ["ours", *lines]
    theirs = [*lines, "theirs"]
    assert merge_lines(join(*lines), join(*ours), join(*theirs)).text == join(*ours, "theirs")


def test_trees_are_merged_as_git_merges_them(tmp_path: Path) -> None:
    store = open_store(tmp_path, make_repository(tmp_path / "app", {}))

    def make_tree(files: dict[str, bytes], mode: int = REGULAR | 0o644) -> str:
        return store.write_tree(
            {path: TreeEntry(mode, store.write(data)) for path, data in files.items()}
        )

    base = {"a": join(*"abcdefg"), "gone": b"g\n", "deep/er/x": b"x\n", "kept": b"k\n"}
    ours = {**base, "a": join(*"Abcdefg"), "deep/er/x": b"ours\n", "new": b"n\n"}
    theirs = {**base, "a": join(*"abcdefG"), "deep/er/y": b"y\n", "kept": b"theirs\n"}
    del theirs["gone"]
    trees = [make_tree(files) for files in (base, ours, theirs)]
    merge = merge_entries(store, *trees)
    assert merge == merge_trees(store, *trees)
    assert merge.conflicts == ()


def test_kinds_of_conflicts_are_those_of_git(tmp_path: Path) -> None:
    store = open_store(tmp_path, make_repository(tmp_path / "app", {}))

    def make_tree(files: dict[str, bytes | None]) -> str:
        return store.write_tree(
            {
                path: TreeEntry(REGULAR | 0o644, store.write(data))
                for path, data in files.items()
                if data is not None
            }
        )

    base: dict[str, bytes | None] = {"gone": b"a\n" * 9, "bin": b"\0", "one": b"1\n"}
    ours = make_tree({**base, "gone": None, "bin": b"\0ours", "one": b"ours\n", "both": b"ours\n"})
    theirs = make_tree(
        {"gone": b"a\n" * 9 + b"b\n", "bin": b"\0other", "one": b"theirs\n", "both": b"theirs\n"}
    )
    merge = merge_entries(store, make_tree(base), ours, theirs)
    kinds = {conflict.path: conflict.kind for conflict in merge.conflicts}
    assert kinds == {
        "gone": "modified-deleted",
        "bin": "binary",
        "one": "both-modified",
        "both": "both-added",
    }
    with_git = merge_trees(store, make_tree(base), ours, theirs)
    assert {conflict.path: conflict.kind for conflict in with_git.conflicts} == kinds
    one = next(conflict for conflict in merge.conflicts if conflict.path == "one")
    assert store.read(one.text).count(b"<<<<<<<") == 1
