"""Tool sources: opened and closed with the session; changes count for later runs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from mudroom import Effect, Integrations, Session, Tool, ToolResult
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom.permissions.rules import Permissions, Rule, Verdict
from mudroom.ports import ToolContext

from ..waiting import wait_until


def make_tool(name: str, answer: str) -> Tool:
    async def run(context: ToolContext, arguments: dict[str, object]) -> ToolResult:
        return ToolResult(answer)

    schema = {"type": "object"}
    return Tool(
        name=name, description="", parameters=schema, parse=dict, run=run, effect=Effect.PURE
    )


class FolderSource:
    """Source of tools from a folder: each file is a tool that returns the text of the file."""

    def __init__(self, folder: Path, **texts: str) -> None:
        self.name = folder.name
        self.is_open = False
        self._folder = folder
        self._listed: dict[str, str] = {}
        for name, text in texts.items():
            folder.mkdir(exist_ok=True)
            (folder / name).write_text(text)

    async def open(self) -> None:
        self._read()
        self.is_open = True

    async def list(self) -> Sequence[Tool]:
        self._listed = self._read()
        return [make_tool(name, text) for name, text in self._listed.items()]

    async def wait_for_change(self) -> None:
        while self._read() == self._listed:  # noqa: ASYNC110  folders send no notice
            await asyncio.sleep(0.005)

    async def close(self) -> None:
        self.is_open = False

    def _read(self) -> dict[str, str]:
        return {file.name: file.read_text() for file in sorted(self._folder.iterdir())}


async def wait_until_removed(session: Session, name: str) -> None:
    """Wait until the session has followed the removal of a tool."""
    await wait_until(lambda: name not in session.tools)


def open_session(
    folder: Path, *sources: FolderSource, permissions: Permissions | None = None
) -> Session:
    def answer(request: Request) -> Answer:
        return f"answer: {request.results[0].text}" if request.turn else [call("weather")]

    return Session(
        model=ScriptedModel(answer),
        cwd=str(folder),
        home=str(folder / "home"),
        integrations=Integrations(tool_sources=sources),
        permissions=permissions or Permissions(),
        journal="memory",
        sandbox="off",
        environ={},
    )


async def test_tools_of_a_source_are_used_and_the_source_is_closed(tmp_path: Path) -> None:
    source = FolderSource(tmp_path / "tools", weather="rain")
    async with open_session(tmp_path, source) as session:
        assert source.is_open
        assert "weather" in session.tools
        assert (await session.run("How is the weather?")).text == "answer: rain"
    assert not source.is_open


async def test_a_change_counts_for_the_next_run(tmp_path: Path) -> None:
    source = FolderSource(tmp_path / "tools", weather="rain", tide="low")
    async with open_session(tmp_path, source) as session:
        (tmp_path / "tools" / "weather").write_text("sun")
        (tmp_path / "tools" / "tide").unlink()
        await wait_until_removed(session, "tide")
        assert (await session.run("How is the weather?")).text == "answer: sun"


async def test_a_source_never_replaces_another_tool(tmp_path: Path) -> None:
    first = FolderSource(tmp_path / "first", weather="rain")
    second = FolderSource(tmp_path / "second", weather="sun", read="wrong", tide="low")
    async with open_session(tmp_path, first, second) as session:
        assert (await session.run("How is the weather?")).text == "answer: rain"
        for name in ("weather", "read", "tide"):
            (tmp_path / "second" / name).unlink()
        await wait_until_removed(session, "tide")
        assert {"weather", "read"} <= set(session.tools)


async def test_a_source_that_cannot_be_opened_is_a_notice(tmp_path: Path) -> None:
    missing = FolderSource(tmp_path / "missing")
    source = FolderSource(tmp_path / "tools", weather="rain")
    async with open_session(tmp_path, missing, source) as session:
        assert session.notices[-1].text.startswith("the tools of missing are missing: [Errno 2]")
        assert "weather" in session.tools
    assert not missing.is_open


async def test_a_denied_tool_is_left_out(tmp_path: Path) -> None:
    permissions = Permissions(rules=(Rule(Verdict.DENY, "weather"),))
    source = FolderSource(tmp_path / "tools", weather="rain")
    async with open_session(tmp_path, source, permissions=permissions) as session:
        assert "weather" not in session.tools
