"""Fixtures for tools: a run with real files and real processes."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from mudroom._adapters.sandboxes.unsandboxed import Unsandboxed
from mudroom._adapters.tools import make_builtin_tools
from mudroom._adapters.workspaces.shared import SharedWorkspace
from mudroom._core.ports import Sandbox
from mudroom._core.tool_names import add_implied_arguments, normalize_tool_name
from mudroom._core.tools import ToolResult
from mudroom.errors import MudroomError

Call = Callable[..., Awaitable[ToolResult]]


class Run:
    """The port ToolContext."""

    def __init__(self, folder: Path) -> None:
        (folder / "root").mkdir()
        (folder / "spills").mkdir()
        self.run_id, self.turn = "1", 1
        self.memo: dict[str, Any] = {}
        self.workspace = SharedWorkspace(str(folder / "root"), [str(folder / "spills")])
        self.sandbox: Sandbox = Unsandboxed(str(folder / "root"))
        self.redact = str
        self.traceparent = ""
        self.root, self.spills = folder / "root", folder / "spills"

    def spill_path(self, name: str) -> str:
        return str(self.spills / f"{name}-{len(os.listdir(self.spills))}")

    async def run_detachable(
        self, title: str, work: Awaitable[ToolResult], on_detach: object
    ) -> ToolResult:
        return await work


@pytest.fixture
def ctx(tmp_path: Path) -> Run:
    return Run(tmp_path)


@pytest.fixture
def call(ctx: Run) -> Call:
    """Call a built-in tool as the engine does: with argument aliases, and errors as results."""
    tools = make_builtin_tools()

    async def call(name: str, /, **arguments: Any) -> ToolResult:
        tool = tools[normalize_tool_name(name)]
        try:
            sent = add_implied_arguments(name, arguments)
            return await tool.run(ctx, tool.parse(tool.read_arguments(sent, called=name)))
        except (ValueError, MudroomError) as error:
            return ToolResult(str(error), error=True)

    return call
