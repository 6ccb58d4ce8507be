"""Paths in tool arguments that another program would expand: expanded here, or refused."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.engine.conftest import Stage

from mudroom import Effect, Permissions, tool
from mudroom._adapters.models.scripted import call
from mudroom._adapters.tools import make_builtin_tools
from mudroom._core.messages import ToolCallBlock, ToolResultBlock
from mudroom._core.ports import ToolContext

TOOLS = tuple(make_builtin_tools()[name] for name in ("read", "write", "edit", "glob", "grep"))

REFUSED = {
    "$HOME/x.txt": "variables such as $HOME are not expanded here",
    "$home/x.txt": "variables such as $home",
    "${HOME}/x.txt": "variables such as ${HOME}",
    "src/${NAME}/x.txt": "variables such as ${NAME}",
    "$(pwd)/x.txt": "variables such as $(pwd)",
    "`pwd`/x.txt": "variables such as `pwd`",
    "src/`whoami`.txt": "variables such as `whoami`",
    "$env:TEMP\\x.txt": "variables such as $env:TEMP",
    "%USERPROFILE%/x.txt": "variables such as %USERPROFILE%",
    "%USERPROFILE%\\x.txt": "variables such as %USERPROFILE%",
    "src\\win.py": "Use src/win.py.",
    ".\\win.py": "Use ./win.py.",
    "src\\\\win.py": "Use src/win.py.",
    "my\\ notes.txt": "Use my notes.txt.",
    "C:\\Users\\x.txt": "path of Windows",
    "C:/Users/x.txt": "path of Windows",
    "\\\\server\\share": "'\\' does not separate folders here",
    "https://example.com/x.txt": "is an address, not a path",
    "https:/example.com/x.txt": "is an address, not a path",
    "file://elsewhere/tmp/x": "is an address, not a path",
    "vscode://file/x": "is an address, not a path",
    "file:///C:/x.txt": "path of Windows",
    "new /x.txt": "Use new/x.txt.",
    "./new\n/ x.txt": "Use ./new/x.txt.",
    "new\x1b[1m.txt": "may not have control characters",
    "./two\nlines.txt": "may not have control characters",
    '"x.txt"': "Leave out the quotes: x.txt.",
    "'new/x.txt'": "Leave out the quotes: new/x.txt.",
    "~nobody-of-this-name/x.txt": "no user whose home folder is ~nobody-of-this-name",
    "~/x.txt": "is outside the workspace",
    "~": "is outside the workspace",
    "file:///tmp/x.txt": "is outside the workspace",
    "file:/tmp/x.txt": "is outside the workspace",
    "FILE://localhost/tmp/a%20b": "/tmp/a b is outside the workspace",
}
PLAIN = ["~lock.odt", "Foo$Bar.java", "routes/$id.tsx", "routes/$id/edit.tsx", "100%", "a:b", "a$1"]


def make_call(name: str, path: str) -> ToolCallBlock:
    arguments: dict[str, dict[str, str]] = {
        "read": {"file_path": path},
        "write": {"file_path": path, "content": "new\n"},
        "edit": {"file_path": path, "old_string": "old", "new_string": "new"},
        "glob": {"pattern": "*", "path": path},
        "grep": {"pattern": "old", "path": path},
    }
    return call(name, **arguments[name])


def list_results(stage: Stage) -> Sequence[ToolResultBlock]:
    """Return the results in the order of the calls."""
    return stage.model.requests[-1].results


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "home-of-the-user"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    yield folder
    assert not os.listdir(folder)


@pytest.mark.parametrize("name", ["read", "write", "edit", "glob", "grep"])
async def test_no_file_is_made_by_a_path_that_only_another_program_would_expand(
    stage: Stage, name: str
) -> None:
    before = sorted(os.listdir(stage.folder))
    await stage.run([[make_call(name, path) for path in REFUSED], "end"], tools=TOOLS)
    for (path, reason), result in zip(REFUSED.items(), list_results(stage), strict=True):
        assert result.error, path
        assert reason in result.text, path
    assert sorted(os.listdir(stage.folder)) == before


async def test_plain_names_with_such_characters_are_written(stage: Stage) -> None:
    calls = [make_call("write", path) for path in [*PLAIN, "./$HOME/x", "./~/x", "./a\\b"]]
    await stage.run([calls, "end"], tools=TOOLS)
    assert [result.error for result in list_results(stage)] == [False] * len(calls)
    assert (stage.folder / "~" / "x").read_text() == "new\n"


EDGES = ("\n", " ", "\r\n", "\t", "\u00a0", "\u3000")


async def test_white_space_around_a_path_is_dropped(stage: Stage) -> None:
    for number, edge in enumerate(EDGES):
        paths = [f"{number}.txt{edge}", f"{edge}{number}/./x.txt{edge}", f"./{number}.md{edge}"]
        calls = [make_call(name, path) for path in paths for name in ("write", "read", "grep")]
        await stage.run([[*calls, make_call("glob", f"{number}{edge}")], "end"], tools=TOOLS)
        results = list_results(stage)
        assert [result.text for result in results if result.error] == [], edge
        assert results[-1].text == f"{number}/x.txt"
    names = {f"{number}{end}" for number, _ in enumerate(EDGES) for end in ("", ".txt", ".md")}
    assert set(os.listdir(stage.folder)) == {*names, "notes.txt"}


async def test_a_file_whose_name_has_white_space_around_it_can_be_named(stage: Stage) -> None:
    names = [f"a{edge}" for edge in EDGES] + [f"{edge}a" for edge in EDGES] + ["a\nb", '"a"', "'a'"]
    for name in ["a", *names]:
        (stage.folder / name).write_text(f"this is {name!r}\n")
    await stage.run([[make_call("read", name) for name in names], "end"], tools=TOOLS)
    for name, result in zip(names, list_results(stage), strict=True):
        assert repr(name) in result.text


async def test_a_name_that_exists_is_taken_as_it_stands(stage: Stage, home: Path) -> None:
    names = [path for path in REFUSED if not path.startswith(("\\\\", "~nobody"))]
    for number, path in enumerate(names):
        target = stage.folder / path if not path.endswith("~") else stage.folder / "~" / "in"
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.is_dir():
            target.write_text(f"old {number}\n")
    readable = [path for path in names if (stage.folder / path).is_file()]
    await stage.run([[make_call("read", path) for path in readable], "end"], tools=TOOLS)
    for path, result in zip(readable, list_results(stage), strict=True):
        assert not result.error and "old" in result.text, path


async def test_escaped_names_mean_the_file_without_backslashes(stage: Stage) -> None:
    (stage.folder / "app" / "[id]").mkdir(parents=True)
    (stage.folder / "app" / "[id]" / "my page.tsx").write_text("old\n")
    path = r"app/\[id\]/my\ page.tsx"
    await stage.run(
        [[make_call(name, path) for name in ("read", "edit", "grep")], "end"], tools=TOOLS
    )
    assert [result.error for result in list_results(stage)] == [False] * 3
    assert (stage.folder / "app" / "[id]" / "my page.tsx").read_text() == "new\n"


async def test_a_declared_path_of_a_callers_tool_is_read_in_the_same_way(
    stage: Stage, home: Path
) -> None:
    seen: list[str] = []

    @tool(effect=Effect.PURE)
    async def look(context: ToolContext, where: str, note: str) -> str:
        seen.append(where + note)
        return "seen"

    await stage.run(
        [[call("look", where="~/x", note="~/n"), call("look", where="$HOME/x", note="")], "end"],
        tools=[replace(look, path_argument="where")],
    )
    assert seen == [f"{home}/x~/n"]
    assert "not expanded here" in list_results(stage)[-1].text


async def test_a_rule_that_forbids_a_file_holds_for_every_spelling(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(stage.folder.parent))
    (stage.folder / "secrets").mkdir()
    (stage.folder / "secrets" / "a key").write_text("old\n")
    spellings = [
        f"~/{stage.folder.name}/secrets/a key",
        f"file://{stage.folder}/secrets/a%20key",
        f"file:{stage.folder}/secrets/a key",
        r"secrets/a\ key",
        "./secrets/a key",
    ]
    calls = [make_call(name, path) for path in spellings for name in ("read", "grep", "edit")]
    permissions = Permissions.of(deny=["Read(secrets/**)", "Edit(secrets/**)"])
    await stage.run([calls, "end"], tools=TOOLS, permissions=permissions)
    results = list_results(stage)
    assert [(each.error, "not allowed" in each.text) for each in results] == [(True, True)] * len(
        calls
    )
