"""Prompts and resources of MCP servers: known from the cache, fetched for a line of the user."""

from __future__ import annotations

from pathlib import Path

import pytest

from mudroom import Session
from mudroom._adapters.models.scripted import ScriptedModel
from mudroom._cli.actions.prompts import fetch_prompt, list_prompts, prepare_prompt
from mudroom._session.config import Settings
from mudroom.errors import MudroomError, UnknownName, UsageError

from .servers import count_starts, make_quick
from .test_session_servers import open_session


async def test_prompts_and_resources_are_fetched_for_a_line(tmp_path: Path) -> None:
    settings = Settings(home=str(tmp_path / "home"))
    server = make_quick(fault="offers", log=tmp_path / "log")
    async with open_session(tmp_path, ["done"], [server]) as session:
        assert session.mcp.prompts == session.mcp.resources == ()
        with pytest.raises(UnknownName, match="mcp__quick__sumarize"):
            await fetch_prompt(session, "/mcp__quick__sumarize", "")  # starts the server
        assert list_prompts(session) == [
            ("/mcp__quick__summarize", "Summarize a topic."),
            ("/mcp__quick__second", ""),
        ]
        text = await fetch_prompt(session, "/mcp__quick__summarize", "'two words' kind and short")
        assert text == ("Summarize {'topic': 'two words', 'tone': 'kind and short'} @agent-explore")
        with pytest.raises(UsageError, match=r"topic is missing.*summarize TOPIC \[TONE\]"):
            await fetch_prompt(session, "/mcp__quick__summarize", "")
        assert await fetch_prompt(session, "/summarize", "") is None

        line = "Follow @quick:docs://style, and @quick:docs://none."
        prepared = await prepare_prompt(session, settings, line, teammates=())
        assert prepared.text == line
        assert prepared.files == (
            '\n\n<resource server="quick" uri="docs://style">\nUse short names.\n</resource>'
        )
        assert prepared.notes[0] == "@quick:docs://style: attached, 16 characters"
        assert prepared.notes[1].startswith("@quick:docs://none: not attached: server quick: ")
        with pytest.raises(UnknownName, match="absent"):
            await session.mcp.read_resource("absent", "docs://style")
    async with open_session(tmp_path, ["done"], [server]) as session:
        assert [prompt.required for prompt in session.mcp.prompts] == [("topic",), ()]
        assert [(each.uri, each.title, each.mention) for each in session.mcp.resources] == [
            ("docs://style", "Style guide", "quick:docs://style"),
            ("docs://second", "second", "quick:docs://second"),
            ("docs://pages/{name}", "page", "quick:docs://pages/"),
        ]
    assert count_starts(tmp_path / "log") == 1


async def test_pages_before_one_that_fails_are_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = make_quick(fault="offers_one_page")
    async with open_session(tmp_path, ["done"], [server]) as session:
        await session.mcp.restart("quick")
        await session.mcp.restart("quick")
        assert [prompt.name for prompt in session.mcp.prompts] == ["mcp__quick__summarize"]
        uris = [each.uri for each in session.mcp.resources]
        assert uris == ["docs://style", "docs://pages/{name}"]
    assert caplog.messages == [
        "server quick: the list of prompts broke off after 1: the index is broken; "
        "the list of resources broke off after 1: the index is broken"
    ]


async def test_a_session_without_servers_has_no_prompts(tmp_path: Path) -> None:
    async with Session(
        model=ScriptedModel(["done"]), cwd=str(tmp_path), home=str(tmp_path / "h"), environ={}
    ) as session:
        assert await fetch_prompt(session, "/mcp__quick__summarize", "") is None
        with pytest.raises(MudroomError, match="mcp__x__y"):
            await session.mcp.get_prompt("mcp__x__y")
