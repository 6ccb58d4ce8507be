"""Tool sources of a session: the toolbox contains their tools as long as they offer them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack

from .._core.ports import ToolSource
from .._core.tools import Tool


class SessionToolSources:
    """Open tool sources, and the tasks that follow their changes.

    The tools of a run are fixed when it starts; a change counts for later runs. A tool of a source
    never replaces another one of the same name.

    Arguments:
        toolbox: tools of the session by name; changed in place.
        is_allowed: returns whether the session may have a tool of this name.
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

    async def open(self) -> list[str]:
        """Open all sources and add their tools.

        Return a notice for each that could not be opened.
        """
        notices: list[str] = []
        for source in self._sources:
            try:
                await source.open()
                tools = self._add(await source.list())
            except Exception as error:  # noqa: BLE001  a source may raise anything
                notices.append(f"the tools of {source.name} are missing: {error}")
                continue
            self._stack.push_async_callback(source.close)
            self._tasks.append(asyncio.create_task(self._follow(source, tools)))
        return notices

    async def close(self) -> None:
        """Close all sources."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        await self._stack.aclose()

    async def _follow(self, source: ToolSource, tools: list[str]) -> None:
        """Replace the tools of a source whenever they change. `tools`: their names so far."""
        while True:
            await source.wait_for_change()
            new_tools = await source.list()
            for name in tools:
                del self._toolbox[name]
            tools = self._add(new_tools)

    def _add(self, tools: Sequence[Tool]) -> list[str]:
        """Add tools and return the names of those that were added."""
        added: list[str] = []
        for tool in tools:
            if tool.name not in self._toolbox and self._is_allowed(tool.name):
                self._toolbox[tool.name] = tool
                added.append(tool.name)
        return added
