"""mudroom: cut a big task into small ones, and give each small one a clean context of its own.

    import asyncio
    from mudroom import Session

    async def main() -> None:
        async with Session(cwd=".") as session:
            report = await session.task("Which testing framework does this project use?", agent="explore")
            print(report.reason, report.text)

    asyncio.run(main())

This is the only public module. Importing it reads and prints nothing, and loads a part only when it is first named.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._version import __version__ as __version__

if TYPE_CHECKING:
    from ._core.agents import Agent, Output, Reason, Report
    from ._core.budgets import Budget
    from ._core.events import AnyEvent
    from ._core.messages import (
        AssistantMessage,
        Message,
        TextBlock,
        ThinkingBlock,
        ToolCallBlock,
        ToolResultBlock,
        Usage,
        UserMessage,
    )
    from ._core.ports import (
        ApprovalDecision,
        ApprovalRequest,
        Approver,
        Journal,
        Model,
        ToolContext,
    )
    from ._core.tools import Effect, Tool, ToolResult
    from .errors import JournalError, ModelError, ModelUnavailable, MudroomError, UsageError
    from .projections.ledger import Ledger
    from .scope import (
        ContextState,
        ModelConfig,
        OutputConfig,
        OutputObject,
        PromptConfig,
        RunConfig,
        SubAgentScope,
        SubagentTerminateMode,
        ToolConfig,
    )
    from .session import Session
    from .tools.function import tool

_HOMES = {
    "_core.agents": "Agent Output Reason Report",
    "_core.budgets": "Budget",
    "_core.events": "AnyEvent",
    "_core.messages": "AssistantMessage Message TextBlock ThinkingBlock ToolCallBlock ToolResultBlock Usage UserMessage",
    "_core.ports": "ApprovalDecision ApprovalRequest Approver Journal Model ToolContext",
    "_core.tools": "Effect Tool ToolResult",
    "projections.ledger": "Ledger",
    "errors": "JournalError ModelError ModelUnavailable MudroomError UsageError",
    "scope": (
        "ContextState ModelConfig OutputConfig OutputObject PromptConfig RunConfig SubAgentScope SubagentTerminateMode ToolConfig"
    ),
    "session": "Session",
    "tools.function": "tool",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = [  # noqa: RUF022  (by theme)
    "Session",
    "Agent",
    "Budget",
    "Report",
    "Reason",
    "Output",
    "Usage",
    "Ledger",
    "tool",
    "Tool",
    "ToolResult",
    "ToolContext",
    "Effect",
    "SubAgentScope",
    "ContextState",
    "PromptConfig",
    "ModelConfig",
    "RunConfig",
    "ToolConfig",
    "OutputConfig",
    "OutputObject",
    "SubagentTerminateMode",
    "Message",
    "UserMessage",
    "AssistantMessage",
    "TextBlock",
    "ThinkingBlock",
    "ToolCallBlock",
    "ToolResultBlock",
    "AnyEvent",
    "Model",
    "Journal",
    "Approver",
    "ApprovalRequest",
    "ApprovalDecision",
    "MudroomError",
    "UsageError",
    "ModelError",
    "ModelUnavailable",
    "JournalError",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'mudroom' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f".{home}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
