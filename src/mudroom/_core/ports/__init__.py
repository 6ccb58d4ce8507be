"""Ports: Protocols for everything the engine needs from outside, one module per theme.

Each port has one folder of adapters; `mudroom.testing` has a public fake of each.
"""

from .approval import ApprovalDecision, ApprovalRequest, Approver, PermissionVerdict, Policy
from .clock import Clock
from .environment import CommandResult, FileInfo, LocalFiles, Sandbox, Workspace
from .journal import Journal
from .model import Model, ModelConversation, RequestConfig, RetryNotice, StreamChunk
from .tools import Toolbox, ToolContext
from .worker import RunHandle, Worker

__all__ = [
    "ApprovalDecision",
    "ApprovalRequest",
    "Approver",
    "Clock",
    "CommandResult",
    "FileInfo",
    "Journal",
    "LocalFiles",
    "Model",
    "ModelConversation",
    "PermissionVerdict",
    "Policy",
    "RequestConfig",
    "RetryNotice",
    "RunHandle",
    "Sandbox",
    "StreamChunk",
    "ToolContext",
    "Toolbox",
    "Worker",
    "Workspace",
]
