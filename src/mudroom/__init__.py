"""mudroom: splits a big task into small ones and runs each one in a clean context.

    import asyncio
    from mudroom import Session

    async def main() -> None:
        async with Session(cwd=".") as session:
            report = await session.task("Which testing framework is used?", agent="explore")
            print(report.reason, report.text)

    asyncio.run(main())

This module has the names that most programs need. Others are in `mudroom.driving`,
`mudroom.errors`, `mudroom.events`, `mudroom.permissions`, `mudroom.ports`, `mudroom.scope`,
`mudroom.testing`, `mudroom.tracing` and `mudroom.views`; everything else is internal.

The import reads and prints nothing. A name is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._platform.imports import load_later
from ._version import __version__ as __version__

if TYPE_CHECKING:
    from ._adapters.integrations.mcp_servers.spec import ServerSpec
    from ._adapters.integrations.usable_programs import load_usable_programs
    from ._adapters.tools.function import tool
    from ._core.agents import Agent, Mode, Output, WorkspaceKind
    from ._core.budgets import Budget
    from ._core.events import AnyEvent
    from ._core.messages import (
        AssistantMessage,
        ImageBlock,
        Message,
        ProviderBlock,
        TextBlock,
        ThinkingBlock,
        ToolCallBlock,
        ToolResultBlock,
        Usage,
        UserMessage,
    )
    from ._core.options import Children, Compaction, Isolation, ModelOptions
    from ._core.ports import ApprovalDecision, ApprovalRequest, Approver, ToolContext
    from ._core.runs import Reason, Report
    from ._core.tools import Effect, Tool, ToolResult
    from ._projections.ledger import Ledger
    from ._projections.run_tree import OpenWork
    from ._session.options import Integrations, SessionOptions
    from ._session.run_stream import RunStream
    from ._session.session import Session
    from ._session.worker_setup.transports import Workers
    from .errors import JournalError, ModelError, ModelUnavailable, MudroomError, UsageError
    from .permissions.rules import Permissions
    from .scope import ContextState as ContextState
    from .scope import ModelConfig as ModelConfig
    from .scope import OutputConfig as OutputConfig
    from .scope import OutputObject as OutputObject
    from .scope import PromptConfig as PromptConfig
    from .scope import RunConfig as RunConfig
    from .scope import SubAgentScope as SubAgentScope
    from .scope import SubagentTerminateMode as SubagentTerminateMode
    from .scope import ToolConfig as ToolConfig

__all__ = [  # noqa: RUF022  (by theme)
    "Session",
    "SessionOptions",
    "Children",
    "Isolation",
    "Compaction",
    "ModelOptions",
    "Integrations",
    "RunStream",
    "Workers",
    "Agent",
    "Mode",
    "Permissions",
    "Budget",
    "Report",
    "Reason",
    "Output",
    "Usage",
    "ImageBlock",
    "Ledger",
    "OpenWork",
    "AnyEvent",
    "tool",
    "Tool",
    "ToolResult",
    "ToolContext",
    "ServerSpec",
    "load_usable_programs",
    "Effect",
    "Approver",
    "ApprovalRequest",
    "ApprovalDecision",
    "Message",
    "UserMessage",
    "WorkspaceKind",
    "AssistantMessage",
    "TextBlock",
    "ThinkingBlock",
    "ToolCallBlock",
    "ToolResultBlock",
    "ProviderBlock",
    "MudroomError",
    "UsageError",
    "ModelError",
    "ModelUnavailable",
    "JournalError",
]

__getattr__ = load_later(
    __name__,
    {
        "_core.agents": "Agent Mode Output WorkspaceKind",
        "_core.budgets": "Budget",
        "_core.events": "AnyEvent",
        "_core.messages": (
            "AssistantMessage ImageBlock Message ProviderBlock TextBlock ThinkingBlock "
            "ToolCallBlock ToolResultBlock Usage UserMessage"
        ),
        "_core.options": "Children Compaction Isolation ModelOptions",
        "_core.ports": "ApprovalDecision ApprovalRequest Approver ToolContext",
        "_core.runs": "Reason Report",
        "_core.tools": "Effect Tool ToolResult",
        "errors": "JournalError ModelError ModelUnavailable MudroomError UsageError",
        "_adapters.integrations.mcp_servers.spec": "ServerSpec",
        "_adapters.integrations.usable_programs": "load_usable_programs",
        "_session.options": "Integrations SessionOptions",
        "permissions.rules": "Permissions",
        "_projections.ledger": "Ledger",
        "_projections.run_tree": "OpenWork",
        "_session.run_stream": "RunStream",
        # Names of the public module `mudroom.scope`; they can be imported from here, too.
        "scope": (
            "ContextState ModelConfig OutputConfig OutputObject PromptConfig RunConfig "
            "SubAgentScope SubagentTerminateMode ToolConfig"
        ),
        "_session.session": "Session",
        "_session.worker_setup.transports": "Workers",
        "_adapters.tools.function": "tool",
    },
)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
