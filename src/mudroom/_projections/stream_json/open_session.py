"""The stream-json lines of an open session."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ..._core.agents import Agent
from ..._core.messages import Usage
from ..._core.ports import Sandbox
from . import StreamJson


class OpenSession(Protocol):
    """What the first line shows of a session."""

    @property
    def id(self) -> str:
        """Id of the session."""
        ...

    @property
    def cwd(self) -> str:
        """Working directory."""
        ...

    @property
    def model(self) -> str:
        """Model string."""
        ...

    @property
    def tools(self) -> Sequence[str]:
        """Names of the tools of the root agent."""
        ...

    @property
    def agents(self) -> Sequence[Agent]:
        """Agents that tasks can name."""
        ...

    @property
    def sandbox(self) -> Sandbox:
        """The place where commands run."""
        ...

    @property
    def output_style(self) -> str:
        """Name of the output style."""
        ...


def open_lines(
    session: OpenSession,
    *,
    cost: Callable[[str, Usage], float | None],
    mode: str = "default",
) -> StreamJson:
    """Make the fold that turns an open session's events into lines.

    Arguments:
        cost: returns US dollars for a model string and its usage; None if the price is unknown.
        mode: permission mode.
    """
    return StreamJson(
        session=session.id,
        cwd=session.cwd,
        model=session.model,
        tools=session.tools,
        agents=[agent.name for agent in session.agents],
        sandbox=session.sandbox.tier,
        mode=mode,
        output_style=session.output_style,
        cost=cost,
    )
