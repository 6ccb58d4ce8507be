"""Ports: the Protocols that adapters of your own fulfil, and the values that cross them.

`Session` accepts a Model, Journal, Approver, Sandbox or Workspace of your own. The suites of
`mudroom.testing` check an adapter.
"""

from __future__ import annotations

from ._core.agents import Brief
from ._core.budgets import Grant
from ._core.messages import StopReason
from ._core.ports import (
    ApprovalDecision,
    ApprovalRequest,
    Approver,
    Clock,
    CommandResult,
    FileInfo,
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
    Worker,
    Workspace,
)

__all__ = [
    "ApprovalDecision",
    "ApprovalRequest",
    "Approver",
    "Brief",
    "Clock",
    "CommandResult",
    "FileInfo",
    "Grant",
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
    "Toolbox",
    "Worker",
    "Workspace",
]
