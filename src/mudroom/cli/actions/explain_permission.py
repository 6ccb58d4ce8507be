"""`mudroom permissions`: the rules of a folder, and what they decide about one call."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import msgspec

from ..._core.ports import PermissionVerdict
from ..._core.tools import Effect, Tool, canonical_tool_name
from ...permissions.policy import RulePolicy
from ...projections.safe_text import sanitize_line
from .load_permissions import join_tool_flags, load_permissions
from .load_settings import load_settings

_TITLE_ARGUMENTS = {"bash": "command", "task": "agent", "skill": "name", "web_fetch": "url"}
_PURE_TOOLS = ("read", "glob", "grep", "todo", "skill")


def print_permissions() -> int:
    """Print the permission mode and the rules of this folder, and return the exit code."""
    permissions, notices = load_permissions(load_settings("."), ".", attended=True)
    print(f"mode: {permissions.mode}")
    print("\n".join(str(rule) for rule in permissions.rules) or "no rules")
    for notice in notices:
        print(f"note: {notice}")
    return 0


def explain_call(
    subject: str, *, tool: str, cwd: str, can_ask: bool, as_json: bool, flags: dict[str, Any]
) -> int:
    """Print what the permissions decide about a call; return 0 if it is allowed, else 1.

    Arguments:
        subject: the command, or the file, agent or address of another tool.
        can_ask: assume that a user can be asked. flags: permission flags to assume.
    """
    settings = load_settings(cwd, **join_tool_flags(flags))
    permissions, _ = load_permissions(settings, cwd, attended=can_ask)
    mode = permissions.mode
    policy = RulePolicy(
        permissions,
        workspace=os.path.realpath(cwd),
        user_home=os.environ.get("HOME", "/"),
        tier=lambda: "off",
    )
    name = canonical_tool_name(tool)
    stand_in = _make_tool(name)
    arguments = {_TITLE_ARGUMENTS.get(name, "file_path"): subject}
    decision = policy.decide(stand_in, arguments, mode)
    findings = policy.collect_findings(stand_in, arguments)
    parts = [policy.apply_mode(finding, mode) for finding in findings]
    if as_json:
        print(msgspec.json.encode({"decision": decision, "mode": mode, "parts": parts}).decode())
    else:
        _print_decision(decision, parts if len(parts) > 1 else ())
    return 0 if decision.verdict == "allow" else 1


def _print_decision(decision: PermissionVerdict, parts: Iterable[PermissionVerdict]) -> None:
    print(f"{decision.verdict}: {decision.why}")
    if decision.rule:
        print(f"  by {decision.rule}")
    for part in parts:
        rule = f", by {part.rule}" if part.rule else ""
        print(f"  {part.verdict:5}  {sanitize_line(part.part, 60)}: {part.why}{rule}")


def _make_tool(name: str) -> Tool:
    async def refuse_to_run(context: Any, arguments: Any) -> Any:
        raise AssertionError("this tool is only judged, never run")

    effect = Effect.PURE if name in _PURE_TOOLS else Effect.EFFECTFUL
    return Tool(
        name=name, description="", parameters={}, parse=dict, run=refuse_to_run, effect=effect
    )
