"""glob and grep: what they find, with rg and without it, and that they end."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.tools.conftest import Call, Run

from mudroom._core.ports import FileInfo
from mudroom.tools._ripgrep import InvalidPattern, find_ripgrep
from mudroom.tools.grep import parse, search
from mudroom.workspaces.shared import SharedWorkspace

RG = shutil.which("rg") or ""
ENGINES = [
    pytest.param(RG, id="rg", marks=pytest.mark.skipif(not RG, reason="there is no rg")),
    pytest.param("", id="python"),
]


@pytest.fixture
def tree(ctx: Run) -> Run:
    files = {
        "main.py": (
            "import os\n\ndef main():\n    return os.getcwd()\n\n\ndef other():\n    "
            "return 'Main'\n"
        ),
        "src/a.py": "class A:\n    def main(self): ...\n",
        "src/deep/b.ts": "export function main() {\r\n  return 1\r\n}\r\n",
        "doc/readme.md": "# Main\n\nmain, Main, MAIN\nümläut main\n",
        "build/out.py": "def main(): pass\n",
        ".gitignore": "build/\n*.tmp.py\n",
        "src/x.tmp.py": "main\n",
        ".hidden/main.cfg": "main = 1",
    }
    (ctx.root / ".git").mkdir()
    (ctx.root / ".git" / "config").write_text("main\n")
    for path, text in files.items():
        ctx.workspace.write(path, text.encode())
    ctx.workspace.write("image.png", b"\x89PNG\r\n\x1a\n\0main\n")
    ctx.workspace.write("latin.txt", b"caf\xe9 main\n")
    ctx.workspace.write("wide.txt", "wide main\nother\n".encode("utf-16"))
    return ctx


async def test_glob_lists_the_newest_first(tree: Run, call: Call) -> None:
    os.utime(tree.root / "main.py", (1, 1))
    os.utime(tree.root / "src/a.py", (2_000_000_000, 2_000_000_000))
    result = await call("glob", pattern="**/*.py")
    assert result.text == "src/a.py\nmain.py"


async def test_glob_looks_below_a_path(tree: Run, call: Call) -> None:
    assert (await call("glob", pattern="*.py", path="src")).text == "src/a.py"
    assert (await call("glob", pattern=f"{tree.root}/src/**/*.ts")).text == "src/deep/b.ts"


async def test_glob_that_finds_nothing_says_where_there_would_be_something(
    tree: Run, call: Call
) -> None:
    assert (
        await call("glob", pattern="*.ts")
    ).text == "(no files match *.ts; **/*.ts would match 1)"
    assert (await call("glob", pattern="*.zig", path="src")).text == "(no files match *.zig in src)"


async def test_glob_gives_a_hundred_and_says_how_many_there_are(ctx: Run, call: Call) -> None:
    for n in range(150):
        (ctx.root / f"{n:03}").write_text("")
    rows = (await call("glob", pattern="*")).text.splitlines()
    assert len(rows) == 101
    assert rows[-1] == "(100 newest of 150 files; use a narrower pattern or a path)"


@pytest.mark.parametrize("pattern", ["../*", "**/../../*", "/etc/*", "/**"])
async def test_49_glob_does_not_climb_out(tree: Run, call: Call, pattern: str) -> None:
    os.symlink("/etc", tree.root / "etc")
    result = await call("glob", pattern=pattern)
    assert result.error
    assert "passwd" not in result.text


async def test_49_links_are_not_followed_by_either(tree: Run, call: Call) -> None:
    os.symlink("/etc", tree.root / "etc")
    os.symlink("/etc/passwd", tree.root / "users")
    assert "etc" not in (await call("glob", pattern="**")).text
    assert (await call("grep", pattern="root:")).text == "(no matches)"
    assert (await call("grep", pattern="root:", path="etc")).error
    assert (await call("grep", pattern="root:", path="users")).error
    assert (await call("grep", pattern="root:", path="/etc/passwd")).error


SEARCHES: list[dict[str, Any]] = [
    {"pattern": "main"},
    {"pattern": "main", "-i": True},
    {"pattern": "MAIN"},
    {"pattern": "main", "output_mode": "content"},
    {"pattern": "^def", "output_mode": "content"},
    {"pattern": r"\bmain\b$", "output_mode": "content"},
    {"pattern": "1$", "output_mode": "content"},
    {"pattern": "return", "output_mode": "content", "-C": 1},
    {"pattern": "return", "output_mode": "content", "-B": 2, "-A": 1},
    {"pattern": "def", "output_mode": "content", "context": 20},
    {"pattern": "main", "output_mode": "content", "-n": False},
    {"pattern": "main", "output_mode": "count"},
    {"pattern": "main", "glob": "*.py"},
    {"pattern": "main", "glob": "src/**/*.ts"},
    {"pattern": "main", "glob": "!*.py"},
    {"pattern": "main", "glob": "*.{py,md}"},
    {"pattern": "main", "type": "py"},
    {"pattern": "main", "type": "ts"},
    {"pattern": "main", "type": "cfg"},
    {"pattern": "main", "path": "src"},
    {"pattern": "main", "path": "main.py", "output_mode": "content"},
    {"pattern": "main.*?return", "multiline": True, "output_mode": "content"},
    {"pattern": r"def main\(\):\n    return", "output_mode": "content"},
    {"pattern": r"\d+|[A-Z]\w+", "output_mode": "content"},
    {"pattern": "(?i)MAIN", "output_mode": "count"},
    {"pattern": "ü", "output_mode": "content"},
    {"pattern": "nowhere"},
    {"pattern": "main", "head_limit": 2},
    {"pattern": "main", "head_limit": 3, "output_mode": "content"},
    {"pattern": "-main"},
    {"pattern": "wide", "output_mode": "content"},
]


@pytest.mark.skipif(not RG, reason="there is no rg")
@pytest.mark.parametrize("given", SEARCHES, ids=str)
async def test_rg_and_python_answer_alike(tree: Run, given: dict[str, Any]) -> None:
    with_rg = await search(tree.workspace, parse(given), rg=RG)
    with_python = await search(tree.workspace, parse(given), rg="")
    assert with_rg == with_python


@pytest.mark.parametrize("rg", ENGINES)
async def test_grep_modes(tree: Run, rg: str) -> None:
    async def grep(**given: Any) -> str:
        return (await search(tree.workspace, parse(given), rg=rg)).text

    assert (
        await grep(pattern="main")
        == ".hidden/main.cfg\ndoc/readme.md\nlatin.txt\nmain.py\nsrc/a.py\nsrc/deep/b.ts\nwide.txt"
    )
    assert await grep(pattern="main", output_mode="count", path="doc") == "doc/readme.md:2"
    assert (
        await grep(pattern="def", output_mode="content", type="py")
        == "main.py:3:def main():\nmain.py:7:def other():\nsrc/a.py:2:    def main(self): ..."
    )
    around = await grep(pattern="^def", output_mode="content", **{"-A": 1})
    assert around == (
        "main.py:3:def main():\nmain.py-4-    return os.getcwd()\n--\nmain.py:7:def "
        "other():\nmain.py-8-    return 'Main'"
    )
    assert (
        await grep(pattern="main", head_limit=1)
        == ".hidden/main.cfg\n(1 line shown, there are more; narrow the search or raise head_limit)"
    )
    assert await grep(pattern="nowhere", path="src") == "(no matches in src)"


@pytest.mark.parametrize("rg", ENGINES)
async def test_long_lines_and_long_answers_are_cut(ctx: Run, rg: str) -> None:
    (ctx.root / "minified.js").write_text("needle" + "x" * 1_000_000 + "\nneedle\n")
    text = (
        await search(ctx.workspace, parse({"pattern": "needle", "output_mode": "content"}), rg=rg)
    ).text
    assert text.startswith("minified.js:1:needlexxx") and text.endswith(
        "x [line cut]\nminified.js:2:needle"
    )
    (ctx.root / "many").write_text("needle and hay\n" * 100_000)
    text = (
        await search(
            ctx.workspace,
            parse({"pattern": "hay", "output_mode": "content", "head_limit": 0}),
            rg=rg,
        )
    ).text
    assert len(text) < 50_000
    assert "there are more" in text


async def test_54_a_catastrophic_pattern_ends_at_the_limit(ctx: Run) -> None:
    (ctx.root / "a").write_text("a" * 60 + "!\n")
    before = len(os.listdir("/proc/self/fd"))
    began = time.monotonic()
    result = await search(ctx.workspace, parse({"pattern": "(a|a)*$"}), rg="", seconds=0.5)
    assert time.monotonic() - began < 2
    assert result.error
    assert "ended after 0.5 s" in result.text
    assert len(os.listdir("/proc/self/fd")) <= before + 1


async def test_what_was_found_before_the_limit_is_given(ctx: Run) -> None:
    (ctx.root / "a").write_text("aaa\n")
    (ctx.root / "b").write_text("a" * 60 + "!\n")
    result = await search(
        ctx.workspace,
        parse({"pattern": "(a|a)*$", "output_mode": "files_with_matches"}),
        rg="",
        seconds=1.0,
    )
    assert result.text.splitlines()[0] == "a"
    assert "ended after 1 s: not all was searched" in result.text


async def test_cancelling_a_search_ends_its_process(ctx: Run) -> None:
    (ctx.root / "a").write_text("a" * 60 + "!\n")
    async with asyncio.TaskGroup() as group:
        task = group.create_task(search(ctx.workspace, parse({"pattern": "(a|a)*$"}), rg=""))
        await asyncio.sleep(0.3)
        began = time.monotonic()
        task.cancel()
    assert task.cancelled()
    assert time.monotonic() - began < 1


async def test_a_pattern_rg_does_not_know_is_tried_with_python(tree: Run, call: Call) -> None:
    assert (await call("grep", pattern=r"(?<=def )main", path="main.py")).text == "main.py"


async def test_a_pattern_nobody_knows_is_said(tree: Run, call: Call) -> None:
    result = await call("grep", pattern="(unclosed")
    assert result.error
    assert result.text.startswith("pattern is not a regular expression:")


@pytest.mark.parametrize("rg", ENGINES)
async def test_each_program_complains_of_a_bad_pattern(tree: Run, rg: str) -> None:
    with pytest.raises(InvalidPattern):
        await search(tree.workspace, parse({"pattern": "(unclosed"}), rg=rg)


@pytest.mark.parametrize("rg", ENGINES)
async def test_many_files_are_searched_in_batches_in_order(ctx: Run, rg: str) -> None:
    folder = "/".join(["f" * 200] * 5)
    (ctx.root / folder).mkdir(parents=True)
    for n in range(600):
        (ctx.root / folder / f"{n:05}").write_text("needle\n" if n % 30 == 0 else "hay\n")
    text = (await search(ctx.workspace, parse({"pattern": "needle", "head_limit": 0}), rg=rg)).text
    assert text.splitlines() == [f"{folder}/{n:05}" for n in range(0, 600, 30)]


class Swapped(SharedWorkspace):
    """One in which a folder becomes a link that leads out as soon as its files are listed."""

    def walk(self, path: str = ".", *, ignored: bool = False) -> Iterator[FileInfo]:
        yield from super().walk(path, ignored=ignored)
        os.rename(f"{self.root}/in", f"{self.root}/was")
        os.symlink("../outside", f"{self.root}/in")


@pytest.mark.parametrize("rg", ENGINES)
@pytest.mark.parametrize("mode", ["content", "files_with_matches", "count"])
async def test_46_what_is_swapped_after_it_was_listed_is_not_searched(
    tmp_path: Path, rg: str, mode: str
) -> None:
    for folder, text in (("root/in", "needle within\n"), ("outside", "needle OUTSIDE\n")):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "f").write_text(text)
    (tmp_path / "root" / "own").write_text("needle of its own\n")
    open_before = len(os.listdir("/dev/fd"))
    result = await search(
        Swapped(str(tmp_path / "root")), parse({"pattern": "needle", "output_mode": mode}), rg=rg
    )
    assert "own" in result.text and "OUTSIDE" not in result.text and "in/f" not in result.text
    os.unlink(tmp_path / "root" / "in")
    os.rename(tmp_path / "root" / "was", tmp_path / "root" / "in")
    os.unlink(tmp_path / "root" / "own")
    result = await search(
        Swapped(str(tmp_path / "root")), parse({"pattern": "needle", "output_mode": mode}), rg=rg
    )
    assert result.text == "(no matches)", "where nothing is left to search, nothing is searched"
    assert len(os.listdir("/dev/fd")) <= open_before + 1


class Slow(SharedWorkspace):
    """One in which opening a file takes time."""

    def open(self, path: str) -> int:
        time.sleep(0.02)
        return super().open(path)


async def test_a_search_that_is_ended_while_files_are_opened_leaves_none_open(
    tmp_path: Path,
) -> None:
    for n in range(20):
        (tmp_path / f"f{n}").write_text("needle\n")
    before = len(os.listdir("/dev/fd"))
    await search(Slow(str(tmp_path)), parse({"pattern": "needle"}), rg="", seconds=0.1)
    await asyncio.sleep(0.1)
    assert len(os.listdir("/dev/fd")) <= before + 1


@pytest.mark.parametrize("rg", ENGINES)
async def test_odd_names_are_found(ctx: Run, rg: str) -> None:
    for name in ("-e", "new\nline", "a:1:b", "spa ce", "中文"):
        (ctx.root / name).write_text("needle\n")
    text = (await search(ctx.workspace, parse({"pattern": "needle"}), rg=rg)).text
    assert text == "-e\na:1:b\nnew\nline\nspa ce\n中文"


async def test_an_rg_in_the_workspace_is_not_run(ctx: Run) -> None:
    (ctx.root / "rg").write_text("#!/bin/sh\ntouch ran\n")
    os.chmod(ctx.root / "rg", 0o755)
    before = os.environ["PATH"]
    os.environ["PATH"] = str(ctx.root)
    try:
        assert find_ripgrep(ctx.workspace.root) == ""
    finally:
        os.environ["PATH"] = before
