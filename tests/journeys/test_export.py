"""Exports: independent readers open them, tests replay them, and they have no secrets."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mudroom import Reason, Session
from mudroom._adapters.output_filters import Redactor
from mudroom._cli.actions.export import redact_events
from mudroom._core.events import NoteInjected, ToolCallStarted
from mudroom._core.messages import ToolCallBlock
from mudroom.testing import load_replay_model
from mudroom.testing.model_server import ModelServer, ServerAnswer, ServerRequest

from .conftest import Mudroom
from .course import MODEL

SECRET = "sk-ant-" + "a1B2" * 12

READER = """
import json, sys
from claude_agent_sdk import get_session_messages, get_subagent_messages
from claude_agent_sdk import list_sessions, list_subagents
session = sys.argv[1]
print(json.dumps({
    "sessions": [[s.session_id, s.first_prompt] for s in list_sessions(directory=sys.argv[2])],
    "main": [[m.type, m.message["content"]] for m in get_session_messages(session)],
    "children": {
        child: [
            [m.type, m.message["content"], m.parent_tool_use_id]
            for m in get_subagent_messages(session, child)
        ]
        for child in list_subagents(session)
    },
}))
"""


def answer_as_family(request: ServerRequest) -> ServerAnswer:
    if "task" in request.tools:
        tasks = [
            ToolCallBlock(f"toolu_{n}", "task", {"prompt": f"CHILD {n}", "description": "look"})
            for n in (1, 2)
        ]
        return f"end {request.turn}" if request.turn % 2 else tasks
    read = ToolCallBlock("r", "read", {"file_path": "f0.txt", "limit": 1})
    return f"seen {SECRET}" if request.turn else [read]


def _read_with_sdk(words: list[str], environ: dict[str, str]) -> str:
    return subprocess.run(
        [sys.executable, "-c", READER, *words],
        env=environ,
        capture_output=True,
        check=True,
        text=True,
    ).stdout


async def _record_session(mudroom: Mudroom, *prompts: str) -> str:
    async with ModelServer(answer_as_family) as server:
        for n, prompt in enumerate(prompts):
            assert (
                await mudroom(*(["-c"] if n else []), "-p", prompt, *MODEL, url=server.url)
            ).code == 0
    return json.loads((await mudroom("runs", "--json")).out)[0]["id"]


async def test_the_claude_agent_sdk_reads_the_transcripts(mudroom: Mudroom, tmp_path: Path) -> None:
    session = await _record_session(mudroom, "first", "second")
    done = await mudroom("export", session[:8], "-o", str(tmp_path / "claude" / "projects"))
    assert done.code == 0 and "4 child runs" in done.err and not done.out
    again = await mudroom("export", session[:8], "-o", str(tmp_path / "again"))
    assert again.code == 0
    first, second = (
        {path.name: path.read_bytes() for path in (tmp_path / name).rglob("*.json*")}
        for name in ("claude/projects", "again")
    )
    assert first == second and len(first) == 9
    environ = {**os.environ, "CLAUDE_CONFIG_DIR": str(tmp_path / "claude")}
    out = _read_with_sdk([session, str(mudroom.project)], environ)
    seen = json.loads(out)
    assert seen["sessions"] == [[session, "first"]]
    kinds = ["user", "assistant", "user", "user", "assistant"]
    assert [kind for kind, _ in seen["main"]] == kinds * 2
    assert seen["main"][0][1] == "first"
    assert seen["main"][-1][1] == [{"type": "text", "text": "end 3"}]
    assert sorted(seen["children"]) == ["1.1.1", "1.1.2", "2.1.1", "2.1.2"]
    kinds, contents, parents = zip(*seen["children"]["1.1.2"], strict=True)
    assert kinds == ("user", "assistant", "user", "assistant") and contents[0] == "CHILD 2"
    assert set(parents) == {"toolu_2"} and "MUD-0" in contents[2][0]["content"]
    (meta,) = tmp_path.glob("claude/projects/*/*/subagents/agent-1.1.2.meta.json")
    about = json.loads(meta.read_text())
    assert (about["agentType"], about["spawnDepth"]) == ("general", 1)
    assert "parentAgentId" not in about
    assert meta.stat().st_mode & 0o077 == 0 and SECRET not in out


async def test_markdown_export_shows_all_runs(mudroom: Mudroom) -> None:
    session = await _record_session(mudroom, "第一个问题")
    page = (await mudroom("export", "--format", "md")).out
    assert page.startswith(f"# Session {session}\n") and page.count("## Run ") == 3
    for words in ("第一个问题", "CHILD 2", "MUD-0", "**Answer**", "end 1", "[redacted: Anthropic"):
        assert words in page
    assert SECRET not in page and "\x1b" not in page


async def test_a_fixture_replays_the_run_offline(mudroom: Mudroom, tmp_path: Path) -> None:
    await _record_session(mudroom, "first")
    fixture = tmp_path / "fixture.jsonl"
    assert (await mudroom("record", str(fixture))).code == 0
    assert fixture.read_text() == (await mudroom("export", "--format", "fixture")).out
    assert SECRET not in fixture.read_text()
    async with Session(
        model=load_replay_model(fixture),
        cwd=str(mudroom.project),
        journal="memory",
        home=str(tmp_path),
    ) as session:
        report = await session.run("first")
    assert (report.reason, report.text) == (Reason.GOAL, "end 1")


@pytest.mark.parametrize(
    "command", [("record",), ("export", "--html"), ("export", "--format", "md", "-o")]
)
async def test_a_target_that_is_no_file_is_an_error_with_a_remedy(
    mudroom: Mudroom, command: tuple[str, ...]
) -> None:
    await _record_session(mudroom, "first")
    done = await mudroom(*command, "no folder/x")
    assert done.code == 2 and "mkdir -p 'no folder'" in done.err
    for target in ("new/", "."):
        done = await mudroom(*command, target)
        assert done.code == 2 and f"{target} is a folder. Name a file in it" in done.err
    assert not (mudroom.project / "new").exists()


def test_every_text_of_an_event_is_redacted() -> None:
    call = ToolCallStarted(
        at=0, run="1", call=ToolCallBlock("c", "bash", {SECRET: [{"deep": f"echo {SECRET}"}]})
    )
    out = list(redact_events([NoteInjected(at=0, run="1", text=SECRET), call], Redactor({})))
    assert len(out) == 2 and SECRET not in str(out) and "redacted" in str(out)
