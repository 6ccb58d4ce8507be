"""A model that answers only when it is opened."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from mudroom.testing import Request


class Gate:
    """Waits at each request until it is opened. `answer`: returns an answer; None: "Answer 1."."""

    def __init__(self, answer: Callable[[Request], Any] | None = None) -> None:
        self.asked = asyncio.Event()
        self.opened = asyncio.Event()
        self._answer = answer

    async def __call__(self, request: Request) -> Any:
        self.asked.set()
        await self.opened.wait()
        return self._answer(request) if self._answer else f"Answer {request.number}."
