"""Texts of others on stdout and stderr: no command passes a control sequence on, on no stream."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import sys
from pathlib import Path

import pytest

from mudroom._adapters.journals.sqlite.store import SqliteStore
from mudroom._cli.actions.board import open_board
from mudroom._cli.main import main
from mudroom._cli.output.json_output import encode_line
from mudroom._cli.output.report import encode_answer
from mudroom._cli.output.standard_output import SafeTextStream, draw
from mudroom._cli.output.text import paint
from mudroom._core.events import NoteInjected, SessionOpened, StoredEvent, TurnFailed
from mudroom._core.messages import TextBlock, ThinkingBlock
from mudroom._core.runs import Reason, Report
from mudroom._projections.safe_text import escape_json, sanitize
from mudroom.testing.event_builders import (
    run_finished,
    run_started,
    tool_call,
    tool_call_events,
    turn_events,
)

SESSION = "0b5e8a52-6f0c-4b6e-9d0e-3f1c2d4e5a6b"
SEQUENCES = {
    "clipboard": "\x1b]52;c;b3duZWQ=\x07",
    "title": "\x1b]0;owned\x1b\\",
    "link": "\x1b]8;;http://owned.example\x07",
    "colour": "\x1b[31m",
    "erase": "\x1b[2J\x1b[1A",
    "device string": "\x1bP$qm\x1b\\",
    "8-bit CSI": "\x9b31m",
    "8-bit OSC": "\x9d0;owned\x9c",
    "next line": "\x85",
    "bell": "\x07",
    "backspace": "safe\x08\x08\x08\x08evil",
    "carriage return": "safe\revil",
    "form feed": "\x0c\x0b",
    "NUL": "\0",
    "delete": "\x7f",
    "override": "\u202egnp.exe\u202c",
    "isolate": "\u2066x\u2069\u200f\u061c",
    "zero width": "a\u200bb\u2060c\ufeff",
    "tag": "\U000e0041",
    "annotation": "\ufff9a\ufffab\ufffb",
    "line separator": "a\u2028b\u2029c",
    "lone surrogate": "\ud800",
    "half a sequence": "\x1b[",
}
HOSTILE = "BEGIN " + " ".join(SEQUENCES.values()) + " END"
FILE_NAME = HOSTILE.replace("\0", "").replace("/", "").replace("\ud800", "")[:80] + ".txt"
RAW = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)


@pytest.mark.parametrize("sequence", SEQUENCES.values(), ids=SEQUENCES)
def test_every_door_neutralises_every_sequence(sequence: str) -> None:
    buffer = io.BytesIO()
    stream = SafeTextStream(io.TextIOWrapper(buffer, "utf-8"))
    print(f"<{sequence}>", file=stream, flush=True)
    draw(stream, paint([[(f"<{sequence}>", "")]], color=False))
    stream.flush()
    report = Report(text=sequence, reason=Reason.GOAL, run_id="1", outputs=dict[str, object]())
    answer = encode_answer(report).decode()
    line = encode_line({"text": sequence}).decode()
    assert not RAW.search(buffer.getvalue().decode() + sanitize(sequence) + answer + line)
    assert json.loads(line)["text"] == sequence.replace("\ud800", "?")


def test_a_sequence_in_two_writes_is_neutralised() -> None:
    buffer = io.BytesIO()
    stream = SafeTextStream(io.TextIOWrapper(buffer, "utf-8"))
    for character in HOSTILE:
        stream.write(character)
    stream.flush()
    assert not RAW.search(buffer.getvalue().decode())


def test_drawing_keeps_its_own_sequences() -> None:
    buffer = io.BytesIO()
    stream = SafeTextStream(io.TextIOWrapper(buffer, "utf-8"))
    draw(stream, "\x1b[2K" + paint([[("x\x1b[2Jy", "red")]], color=True))
    stream.flush()
    assert buffer.getvalue() == b"\x1b[2K\x1b[31mxy\x1b[0m\n"


def test_a_closed_safe_stream_leaves_the_original_open() -> None:
    original = io.TextIOWrapper(io.BytesIO(), "utf-8")
    SafeTextStream(original).close()
    original.write("still open")
    original.flush()


def test_escaped_json_is_the_same_value() -> None:
    text = json.dumps({HOSTILE: [HOSTILE]}, ensure_ascii=False)
    assert not RAW.search(escape_json(text).replace("\ud800", ""))
    assert json.loads(escape_json(text)) == json.loads(text)


def encode(value: object) -> str:
    """Return JSON that every reader of settings accepts: without the lone surrogate."""
    return json.dumps(value).replace("\\ud800", "")


def make_events(folder: Path) -> list[StoredEvent]:
    """Return a session in which every text that someone else wrote is hostile."""
    call = tool_call("c1", f"read{HOSTILE}", path=HOSTILE, **{HOSTILE: [HOSTILE]})
    task = tool_call("t1", "task", prompt=HOSTILE, description=HOSTILE)
    return [
        SessionOpened(at=0.0, session=SESSION, cwd=str(folder), version=HOSTILE),
        run_started("1", prompt=HOSTILE, agent=HOSTILE),
        *turn_events("1", ThinkingBlock(HOSTILE), TextBlock(HOSTILE), call, task),
        *tool_call_events("1", call, HOSTILE),
        run_started("1.1.1", "1", prompt=HOSTILE, description=HOSTILE, agent=HOSTILE, name=HOSTILE),
        NoteInjected(at=3, run="1.1.1", text=HOSTILE),
        TurnFailed(at=3, run="1.1.1", error=HOSTILE),
        run_finished("1.1.1", Reason.ERROR, error=HOSTILE),
        *tool_call_events("1", task, HOSTILE, error=True),
        *turn_events("1", TextBlock(HOSTILE), turn=2),
        run_finished("1", text=HOSTILE),
    ]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a hostile name, whose files and records are hostile too."""
    base = tmp_path_factory.mktemp("hostile")
    project = base / f"project {FILE_NAME}"
    for name, text in {
        ".claude/agents/bad.md": f"---\nname: {encode('x' + FILE_NAME)}\ndescription: y\n---\nz",
        ".claude/agents/good.md": f"---\nname: good\ndescription: {encode(FILE_NAME)}\n"
        f"tools: Read\n---\n{SEQUENCES['title']}",
        f".claude/agents/{FILE_NAME}.md": "no front matter",
        ".claude/settings.json": encode(
            {
                "permissions": {"deny": [f"Bash({HOSTILE})", HOSTILE]},
                "hooks": {"PreToolUse": [{"matcher": HOSTILE, "hooks": [{"command": HOSTILE}]}]},
                HOSTILE: HOSTILE,
            }
        ),
        ".mcp.json": encode(
            {
                "mcpServers": {
                    HOSTILE: {"command": HOSTILE, "args": [HOSTILE]},
                    "good": {"command": HOSTILE, "env": {HOSTILE: HOSTILE}},
                }
            }
        ),
    }.items():
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8", "replace"))

    async def write() -> None:
        journal = await SqliteStore(base / "home").create(SESSION)
        await journal.append(*make_events(project))
        await journal.close()

    asyncio.run(write())
    with pytest.MonkeyPatch.context() as patch:
        _set_home(patch, base)
        with open_board(str(project)) as board:
            board.add(HOSTILE, HOSTILE, metadata={"agent": HOSTILE})
    return project


def _set_home(patch: pytest.MonkeyPatch, base: Path) -> None:
    patch.setenv("HOME", str(base / "person"))
    patch.setenv("MUDROOM_HOME", str(base / "home"))
    patch.setenv("XDG_CONFIG_HOME", str(base / "etc"))


COMMANDS = {
    "runs": ["runs"],
    "runs of a folder": ["runs", "-C", FILE_NAME],
    "show": ["show", SESSION],
    "show a run": ["show", SESSION, "--run", "1.1.1"],
    "show no run": ["show", SESSION, "--run", HOSTILE.replace("\0", "")],
    "show no session": ["show", HOSTILE.replace("\0", "")],
    "resume": ["resume", SESSION],
    "resume as lines": ["resume", SESSION, "-o", "stream-json"],
    "resume as JSON": ["resume", SESSION, "-o", "json"],
    "export": ["export", SESSION, "--format", "md"],
    "export a fixture": ["export", SESSION, "--format", "fixture"],
    "export to a folder": ["export", SESSION, "-o", f"{FILE_NAME}/x"],
    "rename": ["rename", SESSION, "n\x1b]0;owned\x07\u202en"],
    "runs with a name": ["runs", "--json"],
    "delete": ["delete", SESSION[:8]],
    "agents": ["agents", "list"],
    "an agent": ["agents", "show", "good"],
    "no agent": ["agents", "show", FILE_NAME],
    "a bad agent": ["agents", "check"],
    "servers": ["mcp", "list"],
    "a server": ["mcp", "get", "good"],
    "servers as JSON": ["mcp", "list", "--json"],
    "tools of no server": ["mcp", "tools", FILE_NAME],
    "hooks": ["hooks", "list"],
    "a hook": ["hooks", "test", FILE_NAME],
    "plugins": ["plugins", "list"],
    "judge": ["permissions", "explain", f"echo '{FILE_NAME}' > {FILE_NAME}"],
    "judge as JSON": ["permissions", "explain", f"echo '{FILE_NAME}'", "--json"],
    "trust": ["trust", "add"],
    "trusted": ["trust", "list"],
    "trusted as JSON": ["trust", "list", "--json"],
    "no trust": ["trust", "remove", FILE_NAME],
    "board": ["board", "list"],
    "a task": ["board", "show", "1"],
    "workspaces": ["workspaces", "list"],
    "no workspace": ["workspaces", "show", FILE_NAME],
    "checks": ["doctor"],
    "settings": ["config", "get"],
    "a wrong flag": [f"--x{FILE_NAME}"],
    "a wrong word": ["agents", FILE_NAME],
    "a wrong value": ["-p", "hi", "--output-format", FILE_NAME],
    "a wrong model": ["-p", "hi", "--model", FILE_NAME],
    "a wrong folder": ["-p", "hi", "-C", FILE_NAME],
    "an answer": ["-p", f"say {FILE_NAME}", "--model", "offline"],
    "an answer as JSON": ["-p", f"say {FILE_NAME}", "--model", "offline", "-o", "stream-json"],
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_no_command_prints_a_raw_sequence(
    project: Path,
    command: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    monkeypatch.chdir(project)
    _set_home(monkeypatch, project.parent)
    with open(os.devnull) as nothing, pytest.raises(SystemExit):
        monkeypatch.setattr(sys, "stdin", nothing)
        main(command)
    sys.stdout.flush()
    sys.stderr.flush()
    out, err = capfdbinary.readouterr()
    text = (out + err).decode("utf-8", "surrogateescape")
    assert text.strip(), "it printed nothing"
    assert "bug in mudroom" not in text, text
    assert not RAW.search(text), repr(text)


def test_an_unfinished_sequence_hides_nothing_that_follows() -> None:
    for start in ("\x1b]0;", "\x1bP", "\x1b_", "\x1bX", "\x1b^", "\x9d", "\x90", "\x1b[", "\x1b"):
        assert sanitize(f"bad{start}name: the reason").endswith("name: the reason"[2:])
        assert sanitize(f"bad{start}\nthe reason\x07").endswith("\nthe reason")
