"""`mudroom permissions` and `mudroom trust`: rules, decisions, and trusted folders."""

from __future__ import annotations

import os
from collections.abc import Iterable

from msgspec.structs import replace

from ..._adapters.integrations.program_trust import load_trusted_programs, untrust_programs
from ..._adapters.integrations.usable_programs import describe_program
from ..._adapters.tools.function import declare_tool
from ..._adapters.tools.skill import make_skill_tool
from ..._core.listings import count_noun
from ..._core.ports import PermissionVerdict
from ..._core.ports.environment import SEATBELT_MODE
from ..._core.tool_names import normalize_tool_name
from ..._core.tools import Tool, ToolCategory
from ..._projections.safe_text import sanitize_line
from ..._session.config import Settings
from ..._session.open_adapters import collect_tools
from ...errors import UsageError
from ...permissions import trust
from ..output.json_output import print_json, print_json_line
from ..output.listing import print_entry
from .load_permissions import load_permissions, make_policy
from .load_settings import load_settings
from .programs.load_programs import require_programs
from .programs.print_programs import print_programs_of_folder


def print_permissions(cwd: str) -> None:
    permissions, notices = load_permissions(load_settings(cwd), cwd, can_ask=True)
    print(f"mode: {permissions.mode}")
    for rule in permissions.rules:
        print_entry(str(rule))
    if not permissions.rules:
        print("no rules")
    for notice in notices:
        print_entry(f"note: {notice}")


def explain_call(
    subject: str, *, tool: str, cwd: str, headless: bool, as_json: bool, **flags: object
) -> int:
    """Print what the permissions decide about a call; return 0 if it is allowed, else 1.

    `subject` is the command, or for other tools the file, agent or address.
    """
    settings = load_settings(cwd, **flags)
    permissions, _ = load_permissions(settings, cwd, can_ask=not headless)
    mode = permissions.mode
    policy = make_policy(permissions, cwd, tier=lambda: _find_tier(settings, cwd))
    judged = _find_tool(normalize_tool_name(tool))
    arguments = {judged.path_argument or judged.rule_argument: subject}
    decision = policy.decide(judged, arguments, mode)
    findings = policy.collect_findings(judged, arguments)
    parts = [policy.apply_mode(finding, mode) for finding in findings]
    if as_json:
        print_json_line({"decision": decision, "mode": mode, "parts": parts})
    else:
        _print_decision(decision, parts if len(parts) > 1 else ())
    return 0 if decision.verdict == "allow" else 1


def _find_tier(settings: Settings, cwd: str) -> str:
    """Find the sandbox tier that a session in this folder would have."""
    if settings.sandbox in ("full", "file", "off"):
        return settings.sandbox
    if settings.sandbox == SEATBELT_MODE:
        return "file"
    # Detection starts a program in the sandbox, so it happens only if the answer needs it.
    from ..._adapters.sandboxes.detect import detect

    return detect(os.path.realpath(cwd), os.environ, settings.home).tier


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
    # A tool the session does not have, such as web_fetch: rules match its address.
    unknown = declare_tool(name, "", {"type": "object"})
    return replace(unknown, category=ToolCategory.NETWORK, rule_argument="url")


def print_trusted(*, as_json: bool = False) -> None:
    settings = load_settings(".")
    folders = trust.load_trusted(settings.home)
    programs = require_programs(settings, ".")
    places = {place: len(names) for place, names in load_trusted_programs(settings.home).items()}
    if as_json:
        listed = [
            {
                "name": describe_program(program),
                "command": program.shown,
                "origin": program.origin,
                "trusted": program not in programs.untrusted,
            }
            for program in programs.programs_of_folder
        ]
        print_json({"folders": folders, "programs": places, "programs_here": listed})
        return
    for folder in folders:
        print_entry(folder)
    if not folders:
        print("no folder is trusted for its agents")
    for place, count in places.items():
        print_entry(f"{count_noun(count, 'trusted program')} of {place}")
    if programs.programs_of_folder:
        print("Programs of this folder:")
        print_programs_of_folder(programs)
    if programs.untrusted:
        print_entry("To trust them: mudroom trust add, or --trust for one run.")


def add_trusted(folder: str) -> None:
    """Trust a folder with everything below it, and the programs it now declares."""
    settings = load_settings(".")
    print_entry(f"trusted: {trust.trust_folder(settings.home, folder)}")
    programs = require_programs(settings, folder)
    if programs.programs_of_folder:
        print(
            "These programs may start now. MCP servers and hooks run outside the sandbox; commands"
            " of slash commands run in it, when you call them:"
        )
        programs.remember_trust(settings.home)
        print_programs_of_folder(programs.trust_all())


def remove_trusted(folder: str) -> None:
    """Stop trusting a folder and its programs. Raises UsageError if it is not trusted."""
    home = load_settings(".").home
    # Both, even if the folder's programs alone were trusted.
    had_programs = untrust_programs(home, folder)
    if not trust.untrust_folder(home, folder) and not had_programs:
        raise UsageError(
            "this folder is not in the list of trusted folders",
            where=os.path.realpath(folder),
            remedy="mudroom trust shows the list.",
        )
    print_entry(f"no longer trusted: {os.path.realpath(folder)}")
