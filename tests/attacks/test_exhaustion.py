"""Exhaustion of resources, numbers 102 to 110 of docs/attacks.md.

Each attack ends with a clear error or a cut, within bounded time, memory and disk space, and the
next call works.
"""

from __future__ import annotations

import os
import re
import resource
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mudroom import Session
from mudroom._adapters import agent_files
from mudroom._adapters.agent_files.context_files import load_context_files
from mudroom._adapters.integrations.config_files import Finding, read_json, read_toml
from mudroom._adapters.models.scripted import ScriptedModel, call
from mudroom._adapters.tools import bash
from mudroom._adapters.workspaces.isolated.git_store import GitStore
from mudroom._adapters.workspaces.isolated.store import WorkingFiles
from mudroom._adapters.workspaces.shared import SharedWorkspace
from mudroom._core.events import AnyEvent, ToolCallFinished
from mudroom._platform.scratch_dirs import remove_tree
from mudroom._session.config import load_settings
from mudroom.errors import UsageError

from ..long_form import count_examples
from .conftest import Arena

MEMORY = 300 << 20
"""Bytes that this process may grow by in one attack."""


@contextmanager
def bounded(seconds: float = 20) -> Generator[None]:
    """Assert that the block takes little processor time and memory."""
    began = time.process_time()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    yield
    assert time.process_time() - began < seconds
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10) - before < MEMORY


async def test_102_deep_paths_and_long_names(files: Arena) -> None:
    paths = ["a/" * 1_500 + "x", "b/" * 6_000 + "x", "n" * 256, "n" * 5_000, "é" * 200 + "/x"]
    with bounded():
        for path in paths:
            for name, more in (
                ("read", {"file_path": path}),
                ("write", {"file_path": path, "content": "x"}),
                ("edit", {"file_path": path, "old_string": "x", "new_string": "y"}),
                ("grep", {"path": path, "pattern": "y"}),
                ("glob", {"path": os.path.dirname(path) or ".", "pattern": "*"}),
            ):
                result = await files.call(name, **more)
                assert result.text, name
            assert not (await files.call("read", file_path="main.py")).error
    assert (await files.call("read", file_path=paths[0])).text == "1\ty"
    for path in paths[1:]:
        assert "too long" in (await files.call("write", file_path=path, content="x")).text


def make_deep(folder: str, levels: int) -> None:
    """Nest folders, with a file in each."""
    parent = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=parent)
        os.close(os.open("file.txt", os.O_CREAT | os.O_WRONLY, dir_fd=parent))
        inner = os.open("d", os.O_RDONLY, dir_fd=parent)
        os.close(parent)
        parent = inner
    os.close(parent)


async def test_103_deep_folders(files: Arena) -> None:
    """Listings say what they leave out; stored trees and clean-ups end."""
    make_deep(str(files.root), count_examples(1_200, 10_000))
    with bounded():
        for name, more in (
            ("glob", {"pattern": "**/*.txt"}),
            ("glob", {}),
            ("grep", {"pattern": "hello|zzz"}),
        ):
            result = await files.call(name, **more)
            assert "1 folder that is nested too deep" in result.text
        store = GitStore(str(files.base / "store.git"), str(files.root))
        stored = store.store_files(WorkingFiles(str(files.root)), "index")
        assert len(store.list_entries(stored.tree)) > 200
        assert "(more than 200 folders deep)" in stored.missing[0]


NEST = """
import os, sys
for folder in sys.argv[1:]:
    os.chdir(folder)
    for _ in range(1_200):
        os.mkdir("d")
        os.chdir("d")
print("nested")
"""


async def test_103b_deep_folders_of_commands(
    arena: Arena, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command nests folders where no path reaches; nothing of its sandbox is left behind."""
    (tmp_path / "temporary").mkdir(mode=0o777)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    arena.sandbox = arena.make_sandbox()
    (arena.root / "nest.py").write_text(NEST)
    text = await arena.bash("python3 -I nest.py $PWD ${TMPDIR:-/tmp} ~")
    assert text == "nested"
    assert not (await arena.call("glob", pattern="**/*.py")).error
    arena.sandbox.close()
    arena.sandbox = arena.make_sandbox()  # the sandbox before removes its folder when it is gone
    left = [path for path in (tmp_path / "temporary").iterdir() if (path / "tmp" / "d").exists()]
    remove_tree(arena.root / "d")
    assert left == []
    assert not (arena.root / "d").exists()


async def test_104_many_files(files: Arena) -> None:
    count = count_examples(3_000, 200_000)
    (files.root / "many").mkdir()
    folder = os.open(files.root / "many", os.O_RDONLY)
    for number in range(count):
        os.close(os.open(f"{number}.txt", os.O_CREAT | os.O_WRONLY, dir_fd=folder))
    os.close(folder)
    with bounded(60):
        found = await files.call("glob", pattern="**/*.txt")
        assert f"100 newest of {count:,} files" in found.text
        assert len(found.text) < 10_000
        listed = await files.call("glob", path="many")
        assert f"500 of {count:,} names" in listed.text
        searched = await files.call("grep", pattern="hello")
        assert searched.text.splitlines()[0] == "main.py" or "stopped after" in searched.text


async def test_105_endless_output(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    """The output of `yes`: memory, the text for the model and the file are bounded."""
    limit = 4 << 20
    monkeypatch.setattr(bash, "MAX_SPILL_BYTES", limit)
    with bounded():
        for command in ("yes", "cat /dev/zero", "tr '\\0' x < /dev/zero"):
            result = await arena.call(
                "bash", command=f"{command} | head -c 20000000", timeout=9_000
            )
            assert len(result.text) <= bash.MAX_CHARACTERS
            spilled = [path for path in (arena.base / "records").iterdir() if path.is_file()]
            sizes = [path.stat().st_size for path in spilled]
            assert max(sizes, default=0) <= limit + 100
        result = await arena.call("bash", command="yes", timeout=1_000)
        assert "timed out after 1 s" in result.text
    assert await arena.bash("echo next") == "next"


async def test_106_cyclic_links(files: Arena) -> None:
    (files.root / "loop").symlink_to(".")
    (files.root / "one").symlink_to("two")
    (files.root / "two").symlink_to("one")
    (files.root / "sub").mkdir()
    (files.root / "sub" / "up").symlink_to("..")
    with bounded():
        found = await files.call("glob", pattern="**/main.py")
        assert found.text.split("\n")[0] == "main.py"
        found = await files.call("grep", pattern="hello")
        assert found.text.split("\n")[0] == "main.py"
        for path in ("one", "loop/one", "one/x"):
            assert (await files.call("read", file_path=path)).error
            assert (await files.call("write", file_path=path, content="x")).error


async def test_107_huge_lines_and_sparse_files(files: Arena) -> None:
    (files.root / "line").write_bytes(b"x" * (8 << 20))
    with open(files.root / "sparse", "wb") as file:
        file.truncate(20 << 30)
    with bounded():
        for path in ("line", "sparse"):
            for name, more in (
                ("read", {"file_path": path}),
                ("edit", {"file_path": path, "old_string": "xy", "new_string": "z"}),
            ):
                result = await files.call(name, **more)
                assert 0 < len(result.text) < 60_000
        shown = await files.call("grep", pattern="x", path="line", output_mode="content")
        assert len(shown.text) < 3_000
        assert not (await files.call("write", file_path="sparse", content="small")).error


NAMES = [
    "AGENTS.md",
    ".gitignore",
    ".mcp.json",
    ".mudroom.toml",
    ".claude/settings.json",
    ".claude/skills/s/SKILL.md",
    ".claude/agents/a.md",
    ".claude/commands/c.md",
]


def _make_sparse(path: Path) -> None:
    with open(path, "wb") as file:
        file.truncate(3 << 30)


def _make_nested(path: Path) -> None:
    path.write_text(f"x = {'[' * 100_000}" if path.suffix == ".toml" else "[" * 900_000)


def _make_imports(path: Path) -> None:
    path.write_text("---\nname: a\ndescription: b\n---\n" + "@AGENTS.md `@x` " * 50_000)


def _make_stars(path: Path) -> None:
    path.write_text("\n".join(f"{'*a' * 40}{number}" for number in range(500)))


@pytest.mark.parametrize(
    "make", [_make_sparse, os.mkfifo, _make_nested, _make_imports, _make_stars]
)
def test_108_files_of_a_repository(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """Every file that mudroom reads of itself: huge, a pipe, nested, with imports, with stars."""
    (tmp_path / ".git").mkdir()
    for name in NAMES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        make(tmp_path / name)
    (tmp_path / ("a" * 250)).write_text("")
    findings: list[Finding] = []
    with bounded():
        load_context_files(str(tmp_path), user_home="")
        agent_files.load_skills(str(tmp_path), user_home="")
        for command in agent_files.load_commands(str(tmp_path), user_home="").values():
            command.load_template()
        list(SharedWorkspace(str(tmp_path)).walk())
        for name in NAMES:
            (read_toml if name.endswith(".toml") else read_json)(str(tmp_path / name), findings)
        with pytest.raises(UsageError):
            load_settings(cwd=str(tmp_path), environ={"HOME": str(tmp_path / "h")}, flags={})
    assert findings


async def test_109_patterns_of_a_repository(files: Arena) -> None:
    """Ignore patterns that a regular expression would try for years stop no listing."""
    lines = ["*a" * 40 + "b", "**/a/" * 40 + "b", "?*" * 40 + "b", "[a-z]*" * 40 + "9"]
    (files.root / ".gitignore").write_text("\n".join([*lines, *(f"!{line}" for line in lines)]))
    (files.root / ("a" * 250)).write_text("hello\n")
    deep = files.root / ("a/" * 100)
    deep.mkdir(parents=True)
    (deep / "c").write_text("hello\n")
    with bounded():
        assert "a" * 250 in (await files.call("glob", pattern="**/*")).text
        assert "a/c" in (await files.call("grep", pattern="hello")).text
        pattern = "*a" * 40 + "b"
        assert "no files match" in (await files.call("glob", pattern=pattern)).text


async def test_110_huge_arguments(tmp_path: Path) -> None:
    """A model that sends a megabyte in every argument: each result is cut, the session goes on."""
    huge = "x" * 1_000_000
    (tmp_path / "proj").mkdir()
    calls = [
        call("todo", todos=[{"content": huge, "status": "pending"}]),
        call("read", file_path=huge),
        call("write", file_path="f", content=huge),
        call("edit", file_path="f", old_string=f"{huge}y", new_string=huge),
        call("grep", pattern=huge),
        call("glob", pattern=huge),
        call("bash", command=f"echo {huge}"),
        call(huge[:10_000], x=1),
    ]
    seen: list[AnyEvent] = []
    model = ScriptedModel([*calls, "done"])
    home = str(tmp_path / "home")
    with bounded(40):
        async with Session(model=model, cwd=str(tmp_path / "proj"), home=home) as session:
            session.watch(seen.append)
            assert (await session.run("go")).text == "done"
    ended = [event for event in seen if isinstance(event, ToolCallFinished)]
    assert len(ended) == len(calls)
    for event in ended:
        assert 0 < len(event.result.text) < 60_000, event.name
        assert not re.search(r"Traceback|Error\(", event.result.text)
