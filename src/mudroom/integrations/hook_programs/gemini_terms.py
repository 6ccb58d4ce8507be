"""Names of events and tools as hooks of the Gemini CLI know them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from .spec import HookSpec

_TOOLS = {
    "Bash": "run_shell_command",
    "Read": "read_file",
    "Write": "write_file",
    "Edit": "replace",
    "Glob": "glob",
    "Grep": "search_file_content",
    "WebFetch": "web_fetch",
    "WebSearch": "google_web_search",
    "TodoWrite": "write_todos",
}
"""Tools of Claude Code -> those of the Gemini CLI."""


def get_gemini_name(tool: str) -> str:
    """Return the Gemini CLI's name of a tool of Claude Code. Return an unknown one unchanged."""
    return _TOOLS.get(tool, tool)


def to_gemini_input(spec: HookSpec, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the input of a hook with the names of the Gemini CLI."""
    named = {**fields, "hook_event_name": spec.file_event or spec.event}
    if "tool_name" in fields:
        named["tool_name"] = get_gemini_name(fields["tool_name"])
    return named


def from_gemini_output(
    spec: HookSpec, fields: Mapping[str, Any], output: Mapping[str, Any]
) -> dict[str, Any]:
    """Return an output of the Gemini CLI as one of Claude Code.

    Its `tool_input` has only the arguments that change.
    """
    own = output.get("hookSpecificOutput")
    if not isinstance(own, dict):
        return dict(output)
    specific = cast("dict[str, Any]", own)
    if specific.get("hookEventName") == spec.file_event:
        specific = {**specific, "hookEventName": spec.event}
    changed = specific.get("tool_input")
    if spec.event == "PreToolUse" and isinstance(changed, dict):
        whole = {**fields.get("tool_input", {}), **cast("dict[str, Any]", changed)}
        specific = {**specific, "updatedInput": whole}
    return {**output, "hookSpecificOutput": specific}
