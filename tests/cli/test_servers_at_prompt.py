"""`/mcp` at the prompt: states of the MCP servers, their tools, and restarts."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mudroom import Integrations, Session
from mudroom._adapters.models.scripted import ScriptedModel, call
from mudroom._cli.interactive.conversation import Conversation
from mudroom._session.config import Settings
from mudroom.events import RunStarted

from ..integrations.mcp_servers.servers import count_starts, make_quick
from ..shown_session import show


@asynccontextmanager
async def open_conversation(folder: Path, **options: Any) -> AsyncGenerator[Conversation]:
    script = [[call("mcp_find", query="add")], "done"]
    session = Session(
        model=ScriptedModel(script),
        cwd=str(folder),
        home=str(folder / "home"),
        journal="memory",
        environ={},
        sandbox="off",
        **options,
    )
    settings = Settings(home=str(folder / "home"))
    async with show(session, settings) as conversation:
        yield conversation


async def test_the_states_and_tools_of_servers_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    entry = {"mcpServers": {"spare": {"command": "spare-server"}}}
    (tmp_path / ".mcp.json").write_text(json.dumps(entry))
    env = {"LICENCE_KEY": "a1b2c3d4e5", "LAST_LINES": "no licence\nof key a1b2c3d4e5"}
    servers = [make_quick(), make_quick("broken", "no_start", env=env)]
    async with open_conversation(
        tmp_path, integrations=Integrations(mcp_servers=servers)
    ) as conversation:

        async def show(line: str) -> str:
            capsys.readouterr()
            await conversation.handle_line(line)
            return " ".join(capsys.readouterr().out.split())  # the table wraps long texts

        before = await show("/mcp")
        assert "quick not started" in before
        assert "spare not used: not trusted;" in before
        await conversation.handle_line("Find.")
        after = await show("/mcp")
        pid = conversation.session.mcp.servers[0].pid
        size = conversation.session.mcp.servers[0].definition_bytes
        assert size > 300
        assert f"ready, 7 tools ({size} bytes of definitions), protocol " in after
        assert f"process {pid}" in after
        assert "broken failed: exit code 1; last lines: no licence" in after
        assert after.count("no licence") == 1
        assert "of key [redacted: $LICENCE_KEY]" in after and "a1b2c3d4e5" not in after
        tools = await show("/mcp quick")
        assert "mcp__quick__add" in tools and "Add two numbers." in tools


async def test_a_server_is_started_again_at_the_prompt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log"
    servers = [make_quick(log=log), make_quick("broken", "no_start")]
    async with open_conversation(
        tmp_path, integrations=Integrations(mcp_servers=servers)
    ) as conversation:
        await conversation.handle_line("Find.")
        first = conversation.session.mcp.servers[0].pid
        for _ in range(4):  # more often than a server may end by itself
            await conversation.handle_line("/mcp restart quick")
        assert conversation.session.mcp.servers[0].state == "ready"
        assert conversation.session.mcp.servers[0].pid != first
        assert count_starts(log) == 5
        capsys.readouterr()
        await conversation.handle_line("/mcp restart broken")
        assert "server broken cannot be used: exit code 1" in capsys.readouterr().out


async def test_wrong_names_and_words_have_a_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with open_conversation(tmp_path) as conversation:
        await conversation.handle_line("/mcp")
        assert "This session has no MCP servers." in capsys.readouterr().out
        for line, text in (
            ("/mcp got", "unknown MCP server 'got'"),
            ("/mcp restart", "/mcp restart needs the name of a server"),
            ("/mcp restart got", "unknown MCP server 'got'"),
            ("/mcp start git", "Write /mcp, /mcp NAME or /mcp restart NAME."),
        ):
            await conversation.handle_line(line)
            assert text in capsys.readouterr().out


async def test_a_prompt_of_a_server_is_sent_and_completed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    servers = [make_quick(fault="offers")]
    async with open_conversation(
        tmp_path, integrations=Integrations(mcp_servers=servers)
    ) as conversation:
        prompts: list[str] = []
        conversation.session.watch(
            lambda event: (
                prompts.append(event.brief.prompt) if isinstance(event, RunStarted) else None
            )
        )
        await conversation.handle_line("/mcp__quick__summarize parsers")
        assert prompts == ["Summarize {'topic': 'parsers'} @agent-explore"]
        await conversation.handle_line("/mcp__quick__summarize")
        assert "topic is missing" in capsys.readouterr().out
        mentions = conversation.mentions
        assert ("/mcp__quick__summarize", "Summarize a topic.") in mentions.list_commands()
        assert ("quick:docs://style", "resource") in list(mentions.find_matches("quick:"))
        await conversation.handle_line("/unknown")
        assert "unknown command /unknown" in capsys.readouterr().out
