"""Ports: Protocols for everything the engine needs from outside, one module per subject.

Each port has its folder of adapters, and a public fake in `mudroom.testing`.
"""

from .approval import ApprovalDecision, ApprovalRequest, Approver, PermissionVerdict, Policy
from .board import Board
from .environment import (
    MERGE,
    NO_CHOICE,
    CommandResult,
    Environment,
    Environments,
    FilesLostError,
    Isolation,
    MergeChoice,
    MergeConflict,
    MergedFile,
    MergePlan,
    Sandbox,
    SourceFacts,
    explain_lost_files,
)
from .hooks import HookCallback, HookFunction, Hooks, MessageHookDecision, ToolHookDecision
from .journal import Clock, Journal, SessionHeader, SessionInfo, SessionStore
from .model import (
    Model,
    ModelConversation,
    RateLimited,
    RateLimiter,
    RequestConfig,
    RequestSlot,
    RetryNotice,
    StreamChunk,
)
from .servers import ServerPrompt, ServerResource, ServerStatus, SessionServers
from .tools import Toolbox, ToolContext, ToolServers, ToolSource
from .worker import RunHandle, Worker, WorkerProcesses
from .workspace import (
    ContentCheck,
    FileChangedError,
    FileInfo,
    LinkTarget,
    LocalFiles,
    SkippedPaths,
    Workspace,
    WorkspaceWrapper,
)

__all__ = [
    "MERGE",
    "NO_CHOICE",
    "ApprovalDecision",
    "ApprovalRequest",
    "Approver",
    "Board",
    "Clock",
    "CommandResult",
    "ContentCheck",
    "Environment",
    "Environments",
    "FileChangedError",
    "FileInfo",
    "FilesLostError",
    "HookCallback",
    "HookFunction",
    "Hooks",
    "Isolation",
    "Journal",
    "LinkTarget",
    "LocalFiles",
    "MergeChoice",
    "MergeConflict",
    "MergePlan",
    "MergedFile",
    "MessageHookDecision",
    "Model",
    "ModelConversation",
    "PermissionVerdict",
    "Policy",
    "RateLimited",
    "RateLimiter",
    "RequestConfig",
    "RequestSlot",
    "RetryNotice",
    "RunHandle",
    "Sandbox",
    "ServerPrompt",
    "ServerResource",
    "ServerStatus",
    "SessionHeader",
    "SessionInfo",
    "SessionServers",
    "SessionStore",
    "SkippedPaths",
    "SourceFacts",
    "StreamChunk",
    "ToolContext",
    "ToolHookDecision",
    "ToolServers",
    "ToolSource",
    "Toolbox",
    "Worker",
    "WorkerProcesses",
    "Workspace",
    "WorkspaceWrapper",
    "explain_lost_files",
]
