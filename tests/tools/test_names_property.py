"""Random trees with hostile names: every file is found by its plain name, and by an escaped one."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from tests.tools.conftest import Call, Run

from mudroom._platform.paths import path_to_text, read_path_argument
from mudroom.errors import WorkspaceError

from ..long_form import count_examples

SEEDS = count_examples(6, 200)
PARTS = [
    *("[id]", "[...slug]", "[[opt]]", "{a,b}", "{x}", "(group)", "[", "]", "{", "}", "[!a]"),
    *("!", "#", "-e", "--", "~", "$HOME", "${X}", "%TMP%", "\\", "\\[", "*", "?", "**", "a:b"),
    *(" ", "a b", "new\nline", "\t", "'", '"', "`", ",", ";", "&", "|", "<>", "é", "e\u0301"),
    *("中文", "\udce9", "\udcff", "\\xe9", ".hidden", "a", "b", "page.tsx", "@x", "+", "^", "="),
]
SPECIAL = "*?[]{},!\\"


def make_name(rng: random.Random) -> str:
    while True:
        name = "".join(rng.choices(PARTS, k=rng.choice([1, 1, 2, 3])))
        if name not in (".", "..") and len(os.fsencode(name)) < 200:
            return name


def make_tree(root: Path, rng: random.Random) -> list[str]:
    """Write files; return their paths as tools show them."""
    folders = [""]
    for _ in range(6):
        folder = os.path.join(rng.choice(folders), make_name(rng))
        os.makedirs(root / folder, exist_ok=True)
        folders.append(folder)
    paths: set[str] = set()
    for _ in range(14):
        path = os.path.join(rng.choice(folders), make_name(rng))
        if not os.path.lexists(root / path):
            (root / path).write_text("needle\n")
            paths.add(path)
    return [path_to_text(path) for path in sorted(paths)]


def escape(text: str) -> str:
    r"""Escape what patterns treat specially; "\xe9" stands for a byte and stays."""
    escaped = ""
    for place, c in enumerate(text):
        follows = text[place + 1 : place + 2]
        is_plain = c == "\\" and follows.isascii() and follows.isalnum()
        escaped += f"\\{c}" if c in SPECIAL and not is_plain else c
    return escaped


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_every_file_is_named_by_its_plain_and_by_its_escaped_name(
    ctx: Run, call: Call, seed: int
) -> None:
    rng = random.Random(seed)
    paths = make_tree(ctx.root, rng)

    def exists(path: str) -> bool:
        try:
            ctx.workspace.stat(path)
        except WorkspaceError:
            return False
        return True

    for path in paths:
        listed = (await call("glob", pattern=path)).text
        assert f"\n{listed}\n".count(f"\n{path}\n") == 1, ("glob", path, listed)
        listed = (await call("glob", pattern=escape(path))).text
        assert f"\n{listed}\n".count(f"\n{path}\n") == 1, ("glob", escape(path), listed)
        folder, _, name = path.rpartition("/")
        below = (await call("glob", pattern=name, path=f"./{folder}")).text
        assert f"\n{below}\n".count(f"\n{path}\n") == 1, ("glob below", path, below)
        # Taken as it stands, an escaped name may be another file.
        spellings = [path] if exists(escape(path)) else [path, escape(path)]
        for argument in spellings:
            meant = read_path_argument(argument, exists)
            assert (await call("read", file_path=meant)).text == "1\tneedle", ("read", argument)
    for path in paths[::3]:
        for glob in (path, escape(path)):
            found = (await call("grep", pattern="needle", glob=glob)).text
            assert f"\n{found}\n".count(f"\n{path}\n") == 1, ("grep", glob, found)
        for argument in [path] if exists(escape(path)) else [path, escape(path)]:
            meant = read_path_argument(argument, exists)
            found = (await call("grep", pattern="needle", path=meant)).text
            assert found == path, ("grep", argument, found)
