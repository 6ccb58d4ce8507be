"""Ports: the Protocols that adapters of your own fulfil, and the values that cross them.

`Session` accepts a Model, Journal, Approver, Sandbox or Workspace of your own. The suites of
`mudroom.testing` check an adapter.
"""

from __future__ import annotations

from ._core.budgets import Grant
from ._core.messages import StopReason
from ._core.ports import (
    ApprovalDecision,
    ApprovalRequest,
    Approver,
    Clock,
    CommandResult,
    FileInfo,
    Hooks,
    Journal,
    Model,
    ModelConversation,
    PermissionVerdict,
    Policy,
    RequestConfig,
    RetryNotice,
    RunHandle,
    Sandbox,
    StreamChunk,
    Toolbox,
    ToolContext,
    ToolHookDecision,
    ToolSource,
    Worker,
    Workspace,
)
from ._core.runs import Brief, InboxMessage

__all__ = [
    "ApprovalDecision",
    "ApprovalRequest",
    "Approver",
    "Brief",
    "Clock",
    "CommandResult",
    "FileInfo",
    "Grant",
    "Hooks",
    "InboxMessage",
    "Journal",
    "Model",
    "ModelConversation",
    "PermissionVerdict",
    "Policy",
    "RequestConfig",
    "RetryNotice",
    "RunHandle",
    "Sandbox",
    "StopReason",
    "StreamChunk",
    "ToolContext",
    "ToolHookDecision",
    "ToolSource",
    "Toolbox",
    "Worker",
    "Workspace",
]
