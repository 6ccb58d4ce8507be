"""Ports: Protocols for everything the engine needs from outside, one module per subject.

Each port has its folder of adapters, and a public fake in `mudroom.testing`.
"""

from .approval import ApprovalDecision, ApprovalRequest, Approver, PermissionVerdict, Policy
from .board import Board
from .clock import Clock
from .environment import Environment, Environments
from .hooks import HookCallback, HookFunction, Hooks, MessageHookDecision, ToolHookDecision
from .isolation import (
    MERGE,
    NO_CHOICE,
    FilesLostError,
    Isolation,
    MergeChoice,
    MergeConflict,
    MergedFile,
    MergePlan,
    SourceFacts,
    explain_lost_files,
)
from .journal import Journal, SessionHeader, SessionInfo, SessionStore
from .model import Model, ModelConversation, RequestConfig, RetryNotice, StreamChunk
from .rate_limiter import RateLimited, RateLimiter, RequestSlot
from .sandbox import CommandResult, Sandbox
from .servers import ServerPrompt, ServerResource, ServerStatus, SessionServers
from .tools import Toolbox, ToolContext, ToolServers, ToolSource
from .worker import (
    AnswerLimits,
    ByteLink,
    RunHandle,
    RunLink,
    Worker,
    WorkerConnection,
    WorkerProcesses,
    WorkerTransport,
)
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
    "AnswerLimits",
    "ApprovalDecision",
    "ApprovalRequest",
    "Approver",
    "Board",
    "ByteLink",
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
    "RunLink",
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
    "WorkerConnection",
    "WorkerProcesses",
    "WorkerTransport",
    "Workspace",
    "WorkspaceWrapper",
    "explain_lost_files",
]
