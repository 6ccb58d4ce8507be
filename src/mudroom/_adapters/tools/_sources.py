"""Tools given by reference, and tool sources, whose tools come and go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any

from msgspec.structs import replace

from ..._core.notices import Notice
from ..._core.ports import ToolSource
from ..._core.tools import Tool
from ..._platform.imports import import_object
from ...errors import UsageError


def load_tools(tools: Sequence[Tool | Callable[..., Any] | str]) -> tuple[Tool, ...]:
    """Make tools of functions, and load tools given by name. Raises UsageError."""
    return tuple(each if isinstance(each, Tool) else _load(each) for each in tools)


def _load(reference: Callable[..., Any] | str) -> Tool:
    if not isinstance(reference, str):
        from .function import tool  # most sessions have no custom tools

        return tool(reference)
    try:
        value = import_object(reference)
    except Exception as error:  # a module may raise anything
        raise UsageError(
            f"the tool {reference} cannot be imported: {type(error).__name__}: {error}",
            where="tools",
            remedy='A reference is "package.module:name" of a module that Python finds.',
        ) from error
    if not isinstance(value, Tool):
        raise UsageError(
            f"{reference} is no tool, but {type(value).__name__}",
            where="tools",
            remedy="Make one with @tool.",
        )
    return replace(value, reference=reference)


class SessionToolSources:
    """The open tool sources, and the tasks that follow their changes.

    A run's tools are fixed when it starts, so a change applies to later runs. A source's tool never
    replaces another of the same name in the toolbox, which is changed in place.
    """

    def __init__(
        self,
        sources: Sequence[ToolSource],
        toolbox: dict[str, Tool],
        is_allowed: Callable[[str], bool],
    ) -> None:
        self._sources = sources
        self._toolbox = toolbox
        self._is_allowed = is_allowed
        self._tasks: list[asyncio.Task[None]] = []
        self._stack = AsyncExitStack()

    async def open(self) -> list[Notice]:
        """Open all sources and add their tools; return a notice for each failure."""
        notices: list[Notice] = []
        for source in self._sources:
            try:
                await source.open()
                tools = self._add(await source.list())
            except Exception as error:  # noqa: BLE001  a source may raise anything
                text = f"the tools of {source.name} are missing: {error}"
                notices.append(Notice("missing", text))
                continue
            self._stack.push_async_callback(source.close)
            self._tasks.append(asyncio.create_task(self._follow(source, tools)))
        return notices

    async def close(self) -> None:
        # The tasks use the sources, so they end before the sources close.
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        await self._stack.aclose()

    async def _follow(self, source: ToolSource, tools: list[str]) -> None:
        """Replace a source's tools, given by name, whenever they change."""
        while True:
            await source.wait_for_change()
            new_tools = await source.list()
            for name in tools:
                del self._toolbox[name]
            tools = self._add(new_tools)

    def _add(self, tools: Sequence[Tool]) -> list[str]:
        """Add tools; return the names of those added."""
        added: list[str] = []
        for tool in tools:
            if tool.name not in self._toolbox and self._is_allowed(tool.name):
                self._toolbox[tool.name] = tool
                added.append(tool.name)
        return added
