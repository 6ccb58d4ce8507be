"""`mudroom permissions` and `mudroom trust`: rules, decisions, and trusted folders."""

from __future__ import annotations

import os
from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from ..._core.ports import PermissionVerdict
from ..._core.tool_names import normalize_tool_name
from ..._core.tools import Tool, ToolCategory
from ...errors import UsageError
from ...open_adapters import collect_tools
from ...permissions import trust
from ...permissions.policy import RulePolicy
from ...permissions.rules import Permissions
from ...projections.safe_text import sanitize_line
from ...tools import make_builtin_tools
from ...tools.function import declare_tool
from ...tools.skill import make_skill_tool
from ..output.listing import print_entry
from .load_permissions import load_permissions
from .load_settings import load_settings


def print_permissions() -> int:
    """Print the permission mode and the rules of this folder, and return the exit code."""
    permissions, notices = load_permissions(load_settings("."), ".", can_ask=True)
    print(f"mode: {permissions.mode}")
    for rule in permissions.rules:
        print_entry(str(rule))
    if not permissions.rules:
        print("no rules")
    for notice in notices:
        print_entry(f"note: {notice}")
    return 0


def explain_call(
    subject: str, *, tool: str, cwd: str, can_ask: bool, as_json: bool, flags: dict[str, object]
) -> int:
    """Print what the permissions decide about a call; return 0 if it is allowed, else 1.

    Arguments:
        subject: the command, or the file, agent or address of another tool.
        can_ask: assume that a user can be asked. flags: permission flags to assume.
    """
    settings = load_settings(cwd, **flags)
    permissions, _ = load_permissions(settings, cwd, can_ask=can_ask)
    mode = permissions.mode
    policy = make_policy(permissions, cwd)
    judged = _find_tool(normalize_tool_name(tool))
    arguments = {judged.path_argument or judged.rule_argument: subject}
    decision = policy.decide(judged, arguments, mode)
    findings = policy.collect_findings(judged, arguments)
    parts = [policy.apply_mode(finding, mode) for finding in findings]
    if as_json:
        print(msgspec.json.encode({"decision": decision, "mode": mode, "parts": parts}).decode())
    else:
        _print_decision(decision, parts if len(parts) > 1 else ())
    return 0 if decision.verdict == "allow" else 1


def make_policy(permissions: Permissions, cwd: str) -> RulePolicy:
    """Return the policy of a folder, without a sandbox."""
    return RulePolicy(
        permissions,
        workspace=os.path.realpath(cwd),
        user_home=os.environ.get("HOME", "/"),
        tools=make_builtin_tools(),
        tier=lambda: "off",
    )


def _print_decision(decision: PermissionVerdict, parts: Iterable[PermissionVerdict]) -> None:
    print(f"{decision.verdict}: {decision.why}")
    if decision.rule:
        print(f"  by {decision.rule}")
    for part in parts:
        rule = f", by {part.rule}" if part.rule else ""
        print(f"  {part.verdict:5}  {sanitize_line(part.command_part, 60)}: {part.why}{rule}")


def _find_tool(name: str) -> Tool:
    tools = {**collect_tools((), {}, {}, ask=False), "skill": make_skill_tool({})}
    if name in tools:
        return tools[name]
    # A tool that the session does not have, such as web_fetch: rules match its address.
    unknown = declare_tool(name, "", {"type": "object"})
    return replace(unknown, category=ToolCategory.NETWORK, rule_argument="url")


def print_trusted() -> int:
    """Print the trusted folders and return the exit code."""
    print("\n".join(trust.load_trusted(load_settings(".").home)) or "no folder is trusted")
    return 0


def add_trusted(folder: str) -> int:
    """Trust a folder and all below it, and return the exit code."""
    print(f"trusted: {trust.trust_folder(load_settings('.').home, folder)}")
    return 0


def remove_trusted(folder: str) -> int:
    """Stop trusting a folder and return the exit code. Raises UsageError if it is not trusted."""
    if not trust.untrust_folder(load_settings(".").home, folder):
        raise UsageError(
            "this folder is not in the list of trusted folders",
            where=os.path.realpath(folder),
            remedy="mudroom trust shows the list.",
        )
    print(f"no longer trusted: {os.path.realpath(folder)}")
    return 0
