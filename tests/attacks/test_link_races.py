"""Link races, numbers 87 to 92 of docs/attacks.md.

Another process exchanges a file, or a folder above it, with a link that leads out, thousands of
times a second, while mudroom reads or writes there. Few rounds in `make test`, thousands with
MUDROOM_LONG.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mudroom._adapters.agent_files.context_files import load_context_files
from mudroom._adapters.agent_files.skills import load_skills
from mudroom._adapters.workspaces.copy import make_temporary_copy
from mudroom._adapters.workspaces.isolated.checkout import copy_included
from mudroom._adapters.workspaces.isolated.git_store import GitStore
from mudroom._adapters.workspaces.isolated.store import WorkingFiles
from mudroom._core.ports import FileChangedError
from mudroom.errors import WorkspaceError

from ..long_form import count_examples
from .conftest import SECRET, Arena

ROUNDS = count_examples(150, 5_000)
FEW_ROUNDS = count_examples(20, 1_000)
"""Rounds of what takes milliseconds."""

SWAPPER = """
import ctypes, os, sys
rename = ctypes.CDLL(None).renameat2
old, new = os.fsencode(sys.argv[1]), os.fsencode(sys.argv[2])
assert rename(-100, old, -100, new, 2) == 0
print(flush=True)
while os.getppid() == int(sys.argv[3]):
    for _ in range(100):
        rename(-100, old, -100, new, 2)
"""


@contextmanager
def swapping(path: Path, other: Path) -> Generator[None]:
    """Let another process exchange two paths until the end of the block."""
    words = [sys.executable, "-I", "-S", "-c", SWAPPER, str(path), str(other), str(os.getpid())]
    process = subprocess.Popen(words, stdout=subprocess.PIPE)
    assert process.stdout
    try:
        if not process.stdout.readline():
            pytest.skip("the file system cannot exchange two names")
        yield
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def plant(root: Path, outside: Path, what: str, *names: str) -> tuple[Path, Path]:
    """Make a folder of files and a link out of the workspace; return what is exchanged.

    Arguments:
        what: "file": the link stands for the first file; "folder" or "parent": for the folder
            that the files are in, or for the one above. names: of files outside.
    """
    folder = root / "top" / "data"
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).write_text("inside\n")
    if what == "file":
        (folder / "link").symlink_to(outside / names[0])
        return folder / names[0], folder / "link"
    if what == "folder":
        (root / "top" / "link").symlink_to(outside)
        return folder, root / "top" / "link"
    # The link leads to a folder whose "data" is the folder outside.
    (outside.parent / "beside").mkdir()
    (outside.parent / "beside" / "data").symlink_to(outside)
    (root / "link").symlink_to(outside.parent / "beside")
    return root / "top", root / "link"


WHATS = pytest.mark.parametrize("what", ["file", "folder", "parent"])


@WHATS
async def test_87_link_race_of_reads(files: Arena, what: str) -> None:
    """Lines, images, globs and searches: nothing of the file outside, and no traceback."""
    pair = plant(files.root, files.outside, what, "key")
    (files.outside / "key").write_bytes(b"\x89PNG\r\n\x1a\n" + SECRET.encode())
    seen: set[bool] = set()
    with swapping(*pair):
        for number in range(ROUNDS):
            results = [await files.call("read", file_path="top/data/key")]
            if number % 10 == 0:
                results += [
                    await files.call("grep", pattern="inside|PRIVATE", output_mode="content"),
                    await files.call("grep", pattern="PRIVATE", path="top/data"),
                    await files.call("glob", pattern="**/*", path="top"),
                ]
            for result in results:
                assert SECRET not in result.text
                assert "PNG" not in result.text
                assert "top/data/file" not in result.text
            seen.add(results[0].error)
            assert results[0].error or results[0].text == "1\tinside"
    assert False in seen, "the file itself was read, too"


@WHATS
async def test_88_link_race_of_writes(files: Arena, what: str) -> None:
    pair = plant(files.root, files.outside, what, "file")
    with swapping(*pair):
        for number in range(ROUNDS):
            await files.call("write", file_path="top/data/file", content="evil\n")
            await files.call("write", file_path=f"top/data/new{number}", content="evil\n")
            old, new = ("evil", "inside") if number % 2 else ("inside", "evil")
            await files.call("edit", file_path="top/data/file", old_string=old, new_string=new)
    files.assert_untouched()


@WHATS
def test_89_link_race_of_landings(files: Arena, what: str) -> None:
    """A merge writes and removes only what it has checked, whatever is exchanged meanwhile."""
    pair = plant(files.root, files.outside, what, "file")
    space = files.workspace
    contents: set[Any] = set()

    def is_own(content: object) -> bool:
        contents.add(content)
        return content != b"untouched"

    with swapping(*pair):
        for number in range(ROUNDS):
            path = f"top/data/{'file' if number % 2 else 'other'}"
            for act in (
                lambda path=path: space.write(path, b"landed\n", check=is_own),
                lambda path=path: space.write(path, b"../gone", mode=0o120000, check=is_own),
                lambda path=path: space.remove(path, check=is_own),
                lambda path=path: space.remove_unfinished(path),
            ):
                try:
                    act()
                except (WorkspaceError, FileChangedError):
                    pass
    assert b"untouched" not in contents
    files.assert_untouched()


def test_89b_a_pipe_in_place_of_a_file_stops_no_landing(files: Arena) -> None:
    """The file becomes a pipe after it was checked: the write fails and does not wait."""
    os.mkfifo(files.root / "pipe")
    (files.root / "file").write_text("inside\n")
    ended = threading.Event()

    def land() -> None:
        for _ in range(ROUNDS):
            try:
                files.workspace.write("file", b"landed\n", check=lambda content: True)
            except (WorkspaceError, FileChangedError):
                pass
            try:
                files.workspace.remove("file", check=lambda content: False)
            except (WorkspaceError, FileChangedError):
                pass
        ended.set()

    with swapping(files.root / "file", files.root / "pipe"):
        threading.Thread(target=land, daemon=True).start()
        assert ended.wait(60), "it waits for a writer of the pipe"


@WHATS
def test_90_link_race_of_copies_without_git(files: Arena, what: str) -> None:
    """Copies have no byte of the file outside."""
    pair = plant(files.root, files.outside, what, "key")
    with swapping(*pair):
        for _ in range(FEW_ROUNDS):
            with make_temporary_copy(files.workspace, threading.Event()) as (folder, _missing):
                texts = read_all(Path(folder))
            assert not any(SECRET in text for text in texts)


@WHATS
def test_90b_link_race_of_trees_with_git(files: Arena, what: str) -> None:
    """Trees that git stores, and the objects beside them, have no byte of the file outside."""
    pair = plant(files.root, files.outside, what, "key")
    store = GitStore(str(files.base / "store.git"), str(files.root))
    with swapping(*pair):
        for _ in range(FEW_ROUNDS):
            tree = store.store_files(WorkingFiles(str(files.root)), "index").tree
            entries = store.list_entries(tree)
            assert not any(SECRET.encode() in store.read(entry.id) for entry in entries.values())
            assert "top/data/file" not in entries
    objects = store.git.run("cat-file", "--batch-all-objects", "--batch")
    assert SECRET.encode() not in objects


def read_all(folder: Path) -> list[str]:
    return [path.read_text() for path in folder.rglob("*") if path.is_file()]


class IncludedFiles:
    """The part of a store that `copy_included` uses; the listing was made a moment before."""

    def __init__(self, source: Path, *paths: str) -> None:
        self.source_files = WorkingFiles(str(source))
        self.paths = list(paths)

    def list_included(self, patterns: str) -> list[str]:
        return self.paths


@WHATS
def test_91_link_race_of_included_files(tmp_path: Path, what: str) -> None:
    """`.worktreeinclude` copies nothing from outside, and nothing to outside."""
    arena = Arena(tmp_path, "off")
    pair = plant(arena.root, arena.outside, what, "key")
    (arena.root / ".worktreeinclude").write_text("key\n")
    store: Any = IncludedFiles(arena.root, "top/data/key", "linked/new")
    (arena.root / "linked").mkdir()
    (arena.root / "linked" / "new").write_text("evil")
    with swapping(*pair):
        for number in range(ROUNDS):
            target = tmp_path / "targets" / str(number)
            target.mkdir(parents=True)
            # The tree was stored when this folder was a link.
            (target / "linked").symlink_to(arena.outside)
            copy_included(store, WorkingFiles(str(target)))
            copied = target / "top" / "data" / "key"
            assert not copied.exists() or copied.read_text() == "inside\n"
    arena.assert_untouched()


@WHATS
def test_92_link_race_of_agent_files(tmp_path: Path, what: str) -> None:
    """Context files, their imports, and skills: nothing from outside reaches a prompt."""
    arena = Arena(tmp_path, "off")
    for name in ("SKILL.md", "AGENTS.md"):
        (arena.outside / name).write_text(f"---\nname: data\ndescription: {SECRET}\n---\n{SECRET}")
    (arena.outside / "private-name").write_text("")
    root = arena.root / ".claude" / "skills"
    root.mkdir(parents=True)
    pair = plant(root, arena.outside, what, "SKILL.md", "AGENTS.md")
    (root / "top" / "data" / "SKILL.md").write_text("---\nname: data\ndescription: d\n---\ninside")
    (arena.root / "AGENTS.md").write_text("@.claude/skills/top/data/SKILL.md\n")
    load: list[Callable[[], object]] = [
        lambda: load_context_files(str(arena.root), user_home=""),
        lambda: load_skills(str(arena.root), user_home=""),
    ]
    skill = next(iter(load_skills(str(arena.root), user_home="").by_name.values()))
    load += [skill.load_text, skill.load_template, skill.list_files]
    with swapping(*pair):
        for _ in range(ROUNDS):
            for each in load:
                seen = repr(each())
                assert SECRET not in seen, each
                assert "private-name" not in seen, each
