"""Settings and agent files that are no usable text: a clear notice or error, and no waiting."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mudroom._adapters import agent_files
from mudroom._adapters.agent_files.safe_read import MAX_FILES
from mudroom._adapters.agent_files.skills import MAX_LISTED_FILES
from mudroom._adapters.integrations.usable_programs import load_usable_programs
from mudroom._cli.actions.parse_json_flags import load_json_schema
from mudroom._cli.main import run
from mudroom._platform.regular_files import MAX_BYTES
from mudroom._session.config import load_home
from mudroom.errors import UsageError
from mudroom.permissions.rules import load_permission_files
from mudroom.permissions.trust import TRUST_FILE, load_trusted

PLACES: dict[str, Callable[[Path], None]] = {
    "pipe": os.mkfifo,
    "folder": Path.mkdir,
    "link to itself": lambda path: path.symlink_to(path.name),
    "link to nothing": lambda path: path.symlink_to("nothing"),
    "device": lambda path: path.symlink_to("/dev/zero"),
    "large": lambda path: _write(path, b"#" * (MAX_BYTES + 1)),
}
TEXTS = {
    "latin 1": b'{"hooks": "caf\xe9"}',
    "NUL": b"\0",
    "UTF-16": "{}".encode("utf-16"),
    "deep list": b"[" * 100_000,
    "deep object": b'{"hooks":' * 100_000,
    "list": b"[1]",
    "number": b"5",
    "wrong type": b'{"permissions": {"deny": "Bash"}}',
    "empty": b"",
    "agent": b"---\ndescription: Works.\n---\nWork.",
}
SETTINGS = [".claude/settings.json", ".claude/settings.local.json"]
OTHERS = [".mcp.json", ".gemini/settings.json", ".codex/config.toml", "opencode.json"]
AGENTS = [".claude/agents/a.md", ".codex/agents/a.toml", ".claude/skills/a/SKILL.md", "AGENTS.md"]


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def put(path: Path, kind: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind in PLACES:
        PLACES[kind](path)
    else:
        path.write_bytes(TEXTS[kind])
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    (tmp_path / "project" / ".git").mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize("kind", [*PLACES, *sorted(TEXTS.keys() - {"agent"})])
@pytest.mark.parametrize("name", [*SETTINGS, "user"])
def test_a_settings_file_that_cannot_be_used_is_named(name: str, kind: str, folder: Path) -> None:
    is_user = name == "user"
    path = put(folder / ("home/.claude/settings.json" if is_user else f"project/{name}"), kind)
    loaded = load_permission_files(str(folder / "project"), user_home=str(folder / "home"))
    assert [f"({path})" in note for note in loaded.notices] == [True]
    assert "not used" in loaded.notices[0]
    assert not loaded.rules


@pytest.mark.parametrize("kind", [*PLACES, "NUL", "deep list"])
@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("owner", ["project", "home"])
def test_settings_of_other_programs_that_cannot_be_read_are_named(
    owner: str, name: str, kind: str, folder: Path
) -> None:
    if owner == "home" and name == "opencode.json":
        name = ".config/opencode/opencode.json"
    if owner == "home" and name == ".mcp.json":
        name = ".claude.json"
        if kind == "large":
            pytest.skip("the limit of this file is higher")
    path = put(folder / owner / name, kind)
    programs = load_usable_programs(
        str(folder / "project"),
        home=str(folder / "state"),
        user_home=str(folder / "home"),
        environ={},
    )
    assert [note.startswith(f"{path}: the file is not used") for note in programs.notices] == [True]
    assert "Correct the file." in programs.notices[0]


@pytest.mark.parametrize("kind", [*PLACES, *sorted(TEXTS.keys() - {"empty"})])
def test_a_settings_file_of_mudroom_that_cannot_be_read_is_refused(kind: str, folder: Path) -> None:
    path = put(folder / "config.toml", kind)
    with pytest.raises(UsageError) as error:
        load_home({"MUDROOM_HOME": str(folder)})
    assert error.value.where.startswith(str(path))
    assert error.value.remedy


@pytest.mark.parametrize("kind", [*PLACES, *sorted(TEXTS.keys() - {"list"})])
def test_a_list_of_trusted_folders_that_cannot_be_read_is_refused(kind: str, folder: Path) -> None:
    put(folder / TRUST_FILE, kind)
    with pytest.raises(UsageError, match="the list of trusted folders cannot be read"):
        load_trusted(str(folder))


@pytest.mark.parametrize("kind", [*PLACES, "latin 1", "NUL", "UTF-16"])
@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_file_that_cannot_be_read_is_named(name: str, kind: str, folder: Path) -> None:
    path = put(folder / "project" / name, kind)
    project, home = str(folder / "project"), str(folder / "home")
    agents = agent_files.load_agent_files(project, user_home=home, tools=())
    context = agent_files.load_context_files(project, user_home=home)
    faults = [*agents.diagnostics, *context.diagnostics]
    assert any(str(path) in str(fault) for fault in faults)


@pytest.mark.parametrize("kind", ["pipe", "link to itself", "link to nothing", "device"])
@pytest.mark.parametrize("name", [".claude/agents", ".claude/skills"])
def test_a_folder_of_agent_files_that_cannot_be_listed_is_named(
    name: str, kind: str, folder: Path
) -> None:
    path = put(folder / "project" / name, kind)
    faults = agent_files.load_agent_files(
        str(folder / "project"), user_home="", tools=()
    ).diagnostics
    assert [(fault.path, fault.severity) for fault in faults] == [(str(path), "error")]


@pytest.mark.parametrize("name", [".claude/agents", ".claude/skills"])
def test_a_folder_of_agent_files_outside_the_project_is_named(name: str, folder: Path) -> None:
    put(folder / "home/agents/a.md", "empty")
    path = folder / "project" / name
    path.parent.mkdir()
    path.symlink_to(folder / "home/agents")
    loaded = agent_files.load_agent_files(str(folder / "project"), user_home="", tools=())
    assert [(fault.path, fault.severity) for fault in loaded.diagnostics] == [
        (str(path), "warning")
    ]
    assert "a link that leads out of" in loaded.diagnostics[0].text


def test_a_file_named_like_a_folder_of_skills_is_no_problem(folder: Path) -> None:
    (folder / "project/skills").write_text("a list")
    loaded = agent_files.load_agent_files(str(folder / "project"), user_home="", tools=())
    assert not loaded.diagnostics


def test_agent_files_beyond_the_limits_are_named(folder: Path) -> None:
    agents = folder / "project/.claude/agents"
    for number in range(MAX_FILES + 1):
        put(agents / f"a{number:04}.md", "agent")
    put(agents.joinpath(*"1234567", "deep.md"), "agent")
    loaded = agent_files.load_agent_files(str(folder / "project"), user_home="", tools=())
    remarks = [fault.text for fault in loaded.diagnostics if fault.path == str(agents)]
    assert remarks == ["more than 1,000 files; the others are not used"]
    for path in agents.glob("*.md"):
        path.unlink()
    loaded = agent_files.load_agent_files(str(folder / "project"), user_home="", tools=())
    remarks = [str(fault) for fault in loaded.diagnostics]
    place = agents.joinpath(*"12345")
    assert remarks == [f"{place}:1: note: its folders are not searched: 6 levels are the limit"]


def test_a_skill_says_that_it_has_more_files_than_it_lists(folder: Path) -> None:
    path = folder / "project/.claude/skills/a/SKILL.md"
    put(path, "agent")
    for number in range(MAX_LISTED_FILES + 1):
        put(path.parent / f"{number:03}.txt", "empty")
    project = str(folder / "project")
    skill = agent_files.load_agent_files(project, user_home="", tools=()).skills["a"]
    names = skill.list_files()
    assert len(names) == MAX_LISTED_FILES + 1 and "more files" in names[-1]


def test_a_number_with_too_many_digits_is_no_toml(folder: Path) -> None:
    text = b"max_turns = " + b"9" * 5_000
    (folder / "config.toml").write_bytes(text)
    with pytest.raises(UsageError, match="not TOML"):
        load_home({"MUDROOM_HOME": str(folder)})
    path = put(folder / "project/.codex/agents/a.toml", "empty")
    path.write_bytes(text)
    loaded = agent_files.load_agent_files(str(folder / "project"), user_home="", tools=())
    assert [(fault.path, fault.severity) for fault in loaded.diagnostics] == [(str(path), "error")]


def test_a_large_or_endless_schema_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    path.write_text(json.dumps({"description": "ü" * (MAX_BYTES // 2)}, ensure_ascii=False))
    with pytest.raises(UsageError, match="larger than"):
        load_json_schema(str(path))
    with pytest.raises(UsageError, match=r"larger than .* \(--json-schema /dev/zero\)"):
        load_json_schema("/dev/zero")


YAML = {
    "bomb": "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]",
    "long anchor": f"x: &a {'y' * 60_000}\nz: *a",
    "anchor in itself": "x: &a [*a]",
    "Python object": "x: !!python/object/apply:os.system ['exit 1']\ny: *a",
    "deep list": f"x: {'[' * 20_000}",
    "backslashes": 'x: "' + "\\" * 50_001 + '"',
}


@pytest.mark.parametrize("kind", YAML)
def test_hostile_yaml_is_named(kind: str, folder: Path) -> None:
    path = put(folder / "project/.claude/agents/a.md", "empty")
    path.write_text(f"---\nname: a\ndescription: b\n{YAML[kind]}\n---\nWork.")
    loaded = agent_files.load_agent_files(str(folder / "project"), user_home="", tools=())
    assert [(fault.path, fault.severity) for fault in loaded.diagnostics] == [(str(path), "error")]


def test_a_long_wrong_value_of_a_flag_is_shortened(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["-p", "a", "--max-turns", "x" * 1_000_000]) == 2
    assert "characters left out" in capsys.readouterr().err
