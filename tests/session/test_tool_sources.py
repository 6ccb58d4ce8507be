"""Tool sources: opened and closed with the session; changes count for later runs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from mudroom import Effect, Session, Tool, ToolResult
from mudroom.models.scripted import Answer, Request, ScriptedModel, call
from mudroom.permissions.rules import Permissions, Rule, Verdict
from mudroom.ports import ToolContext


def make_tool(name: str, answer: str) -> Tool:
    async def run(context: ToolContext, arguments: dict[str, object]) -> ToolResult:
        return ToolResult(answer)

    schema = {"type": "object"}
    return Tool(
        name=name, description="", parameters=schema, parse=dict, run=run, effect=Effect.PURE
    )


class FakeSource:
    """A source whose tools a test sets."""

    def __init__(self, *tools: Tool, error: str = "") -> None:
        self.name = "fake"
        self.tools: Sequence[Tool] = tools
        self.calls: list[str] = []
        self._error = error
        self._changed = asyncio.Event()

    async def open(self) -> None:
        self.calls.append("open")
        if self._error:
            raise ConnectionError(self._error)

    async def list(self) -> Sequence[Tool]:
        self._changed.clear()
        return self.tools

    async def wait_for_change(self) -> None:
        await self._changed.wait()

    async def close(self) -> None:
        self.calls.append("close")

    async def set_tools(self, *tools: Tool) -> None:
        """Change the tools and let the session notice."""
        self.tools = tools
        self._changed.set()
        await asyncio.sleep(0.01)


def open_session(
    folder: Path, *sources: FakeSource, permissions: Permissions | None = None
) -> Session:
    def answer(request: Request) -> Answer:
        return f"answer: {request.results[0].text}" if request.turn else [call("weather")]

    return Session(
        model=ScriptedModel(answer),
        cwd=str(folder),
        home=str(folder / "home"),
        tool_sources=sources,
        permissions=permissions or Permissions(),
        journal="memory",
        sandbox="off",
        environ={},
    )


async def test_tools_of_a_source_are_used_and_the_source_is_closed(tmp_path: Path) -> None:
    source = FakeSource(make_tool("weather", "rain"))
    async with open_session(tmp_path, source) as session:
        assert "weather" in session.tools
        assert (await session.run("How is the weather?")).text == "answer: rain"
    assert source.calls == ["open", "close"]


async def test_a_change_counts_for_the_next_run(tmp_path: Path) -> None:
    source = FakeSource(make_tool("weather", "rain"), make_tool("tide", "low"))
    async with open_session(tmp_path, source) as session:
        await source.set_tools(make_tool("weather", "sun"))
        assert "tide" not in session.tools
        assert (await session.run("How is the weather?")).text == "answer: sun"


async def test_a_source_never_replaces_another_tool(tmp_path: Path) -> None:
    first = FakeSource(make_tool("weather", "rain"))
    second = FakeSource(make_tool("weather", "sun"), make_tool("read", "wrong"))
    async with open_session(tmp_path, first, second) as session:
        assert (await session.run("How is the weather?")).text == "answer: rain"
        await second.set_tools()
        assert {"weather", "read"} <= set(session.tools)


async def test_a_source_that_cannot_be_opened_is_a_notice(tmp_path: Path) -> None:
    broken = FakeSource(error="connection refused")
    async with open_session(tmp_path, broken, FakeSource(make_tool("weather", "rain"))) as session:
        assert session.notices[-1] == "the tools of fake are missing: connection refused"
        assert "weather" in session.tools
    assert broken.calls == ["open"]


async def test_a_denied_tool_is_left_out(tmp_path: Path) -> None:
    permissions = Permissions(rules=(Rule(Verdict.DENY, "weather"),))
    source = FakeSource(make_tool("weather", "rain"))
    async with open_session(tmp_path, source, permissions=permissions) as session:
        assert "weather" not in session.tools
