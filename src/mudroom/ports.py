"""Ports: Protocols that your own adapters implement, and the values that cross them.

`Session` accepts your own Model, Journal, SessionStore, Approver, Hooks, ToolSource, Sandbox or
Workspace. The suites of `mudroom.testing` check an adapter.
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
    Environment,
    Environments,
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
    SessionHeader,
    SessionInfo,
    SessionStore,
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
    "Environment",
    "Environments",
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
    "SessionHeader",
    "SessionInfo",
    "SessionStore",
    "StopReason",
    "StreamChunk",
    "ToolContext",
    "ToolHookDecision",
    "ToolSource",
    "Toolbox",
    "Worker",
    "Workspace",
]
