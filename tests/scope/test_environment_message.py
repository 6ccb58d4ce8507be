"""The first message of a scope: date, platform, folder, and a tree of the files."""

from __future__ import annotations

import platform
import time
from pathlib import Path

from mudroom._adapters.workspaces.shared import SharedWorkspace
from mudroom.scope.subagent import MAX_WALKED_FILES, draw_tree, make_environment_messages

from .conftest import Open, join_texts, run_scope


async def test_a_scope_begins_with_the_environment_and_the_reply(scripted: Open) -> None:
    async with scripted(["Done."]) as (session, model):
        await run_scope(session)
        folder = session.cwd
    first, second, third = model.requests[0].messages
    for fact in (time.strftime("%Y-%m-%d"), platform.system(), folder, "└───paper.md"):
        assert fact in join_texts(first)
    assert join_texts(second) == "Got it. Thanks for the context!"
    assert join_texts(third) == "Get Started!"


def test_files_are_drawn_as_a_tree_with_folders_first() -> None:
    paths = ["README.md", "docs/a.md", "docs/b/c.md", "src/main.py", "zoo.txt"]
    assert list(draw_tree(paths, 200)) == [
        "├───docs/",
        "│   ├───b/",
        "│   │   └───c.md",
        "│   └───a.md",
        "├───src/",
        "│   └───main.py",
        "├───README.md",
        "└───zoo.txt",
    ]


def test_a_tree_that_is_cut_shows_the_upper_levels() -> None:
    paths = [f"a/deep/{n}.txt" for n in range(100)] + ["b/x.txt", "b/y.txt", "c.txt"]
    assert list(draw_tree(paths, 5)) == [
        "├───a/",
        "│   └───deep/...",
        "├───b/",
        "│   ├───x.txt",
        "│   └───...",
        "└───c.txt",
    ]


def test_an_empty_folder_has_an_empty_tree() -> None:
    assert list(draw_tree([], 200)) == []


def test_a_deep_path_and_a_hostile_name_are_drawn_on_one_line_each() -> None:
    lines = list(draw_tree(["/".join("d" * 300), "line\nbreak\x1b[31m.txt"], 200))
    assert len(lines) == 200
    assert lines[-1] == "└───line break.txt"


def test_a_big_folder_is_read_in_part_and_the_message_says_so(tmp_path: Path) -> None:
    for folder in range(6):
        (tmp_path / f"part{folder}").mkdir()
        for n in range(1_000):
            (tmp_path / f"part{folder}" / f"{n}.txt").touch()
    start = time.process_time()
    message, _ = make_environment_messages(SharedWorkspace(str(tmp_path)))
    assert time.process_time() - start < 5
    text = join_texts(message)
    assert f"only the first {MAX_WALKED_FILES:,} files were looked at" in text
    assert "part0/" in text
    assert len(text.splitlines()) < 220
