"""Typed, non-interactive subagents: SubAgentScope and its configuration."""

from __future__ import annotations

from .config import (
    ContextState,
    ModelConfig,
    OutputConfig,
    OutputObject,
    PromptConfig,
    RunConfig,
    SubagentTerminateMode,
    ToolConfig,
)
from .subagent import SubAgentScope

__all__ = [
    "ContextState",
    "ModelConfig",
    "OutputConfig",
    "OutputObject",
    "PromptConfig",
    "RunConfig",
    "SubAgentScope",
    "SubagentTerminateMode",
    "ToolConfig",
]
