"""Turns the tools that an agent file allows or denies into tool patterns.

An agent never gets more than its file says: a limit that cannot be understood raises ValueError,
and the file is not used.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import cast

from msgspec import Struct

from ..._core.json_values import JsonValue
from ..._core.tool_names import (
    is_known_elsewhere,
    make_server_pattern,
    make_server_tool_name,
    normalize_tool_name,
)
from ..._core.tool_patterns import parse_tool_pattern
from ..._platform.lazy_pattern import compile_later
from ...errors import UnknownName
from .diagnostics import FileDiagnostics

_VERDICTS = ("allow", "ask", "deny")
_LIST_ITEM = compile_later(r"[^,(]+(?:\([^)]*\)?)?[^,(]*")
_GEMINI_MCP = compile_later(r"mcp_([^_]+)_(.+)")


# Tools of GitHub Copilot and VS Code, in lower case, by what they are here.
_GITHUB_TOOLS = {
    "grep glob": "search search/codebase codebase",
    "grep": "search/textsearch textsearch search/usages usages",
    "glob": "search/filesearch filesearch search/listdirectory listdirectory findtestfiles",
    "edit write": "edit/editfiles editfiles",
    "write": "edit/createfile createfile",
    "edit": "edit/editnotebook editnotebook",
    "bash": "execute/runinterminal runinterminal runcommands runcommands/runinterminal",
    "read": "read/readfile read/viewimage",
    "web_fetch web_search": "web",
    "web_fetch": "web/fetch fetch",
    "task": "agent/runsubagent runsubagent",
    "todo": "todos",
    "ask_user": "vscode/askquestions",
}
_FROM_GITHUB = {
    alias: tuple(tools.split())
    for tools, aliases in _GITHUB_TOOLS.items()
    for alias in aliases.split()
}
_GITHUB_GROUPS = "agent edit execute read runcommands runnotebooks runtasks search todo vscode web"
_ONLY_IN_VSCODE = (
    "activepullrequest awaitterminal changes copilotcodingagent createandruntask createdirectory "
    "extensions getterminaloutput githubrepo installextension new newworkspace opensimplebrowser "
    "problems readcelloutput rendermermaiddiagram runnotebooks runtask runtasks runtests "
    "searchresults terminalcommand terminallastcommand terminalselection testfailure "
    "updateuserpreferences vscode vscodeapi"
)


class ToolsField(Struct, frozen=True):
    """The tools and agents that a file names.

    Arguments:
        tools: tool patterns. agents: names or patterns that `task` is limited to; None for all.
    """

    tools: tuple[str, ...]
    agents: tuple[str, ...] | None = None


def parse_names(value: JsonValue) -> list[str]:
    """Return names from a list, or from a text with commas; ValueError for anything else."""
    if value is None:
        return []
    if isinstance(value, str):
        return [name.strip() for name in _LIST_ITEM.findall(value) if name.strip()]
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return [name.strip() for name in cast("list[str]", value) if name.strip()]
    raise ValueError("is not a list of names")


def parse_allowed(
    value: JsonValue, known: Collection[str], diagnostics: FileDiagnostics, line: int
) -> ToolsField:
    """Parse allowed tools: a list, a text with commas, or a map of names to true and false.

    Raises ValueError if the value cannot be understood.

    Arguments:
        known: names of the existing tools. Others are kept, with a warning.
    """
    if isinstance(value, dict):
        return _parse_map(value, known, diagnostics, line)
    tools: dict[str, None] = {}
    agents: tuple[str, ...] | None = None
    for name in _translate(parse_names(value), known, diagnostics, line):
        pattern = parse_tool_pattern(name)
        if pattern.tool == "task" and pattern.calls and not pattern.is_excluded:
            agents = tuple(parse_names(pattern.calls))
            tools["task"] = None
        else:
            tools[_resolve_pattern(name, known, diagnostics, line)] = None
    return ToolsField(tuple(tools), agents)


def parse_denied(
    value: JsonValue, known: Collection[str], diagnostics: FileDiagnostics, line: int
) -> tuple[str, ...]:
    """Turn denied tools and calls into excluding patterns; ValueError for unclear ones."""
    return tuple(
        f"!{_resolve_pattern(name, known, diagnostics, line)}"
        for name in _translate(parse_names(value), known, diagnostics, line)
    )


def is_github_file(path: str) -> bool:
    """Return whether a file is an agent of GitHub Copilot, wherever it is installed."""
    return path.endswith(".agent.md") or "/.github/agents/" in path


def _translate(
    names: list[str], known: Collection[str], diagnostics: FileDiagnostics, line: int
) -> list[str]:
    """Replace the names of GitHub's tools by mudroom's; note those that have no counterpart."""
    result: list[str] = []
    missing: list[str] = []
    for name in names:
        excluded = "!" if name.startswith("!") else ""
        tools = _find_github_tools(name.removeprefix("!"), known, diagnostics.path)
        if tools == ():
            missing.append(name)
        result += [name] if tools is None else [f"{excluded}{tool}" for tool in tools]
    if missing:
        diagnostics.add_note(line, f"has no counterpart here: {', '.join(missing)}")
    return result


def _find_github_tools(name: str, known: Collection[str], path: str) -> tuple[str, ...] | None:
    """Return the tools that one of GitHub's stands for; None for the name of another program."""
    key = name.lower()
    if key == "edit" and is_github_file(path):
        return ("edit", "write")  # a group there, one tool elsewhere
    if key in _FROM_GITHUB:
        return _FROM_GITHUB[key]
    group, slash, tool = key.partition("/")
    if key in _ONLY_IN_VSCODE.split() or (slash and group in _GITHUB_GROUPS.split()):
        return ()
    if "(" in name or name.startswith(("mcp_", "*")):
        return None
    if slash:
        server, _, tool = name.rpartition("/")
        return (make_server_tool_name(server, tool),)
    is_tool = normalize_tool_name(name) in known or is_known_elsewhere(name)
    # There, any other name is a whole MCP server.
    return None if is_tool or not is_github_file(path) else (make_server_pattern(name),)


def parse_permission(value: JsonValue, diagnostics: FileDiagnostics, line: int) -> ToolsField:
    """Parse opencode's `permission`: a map of tools to allow, ask, deny, or to a map of calls.

    Returns excluding patterns or, if "*" is denied, the allowed tools. Raises ValueError if it
    cannot be understood.
    """
    if value in _VERDICTS:
        value = {"*": value}
    if not isinstance(value, dict):
        raise ValueError("is not a map of tools to allow, ask or deny")
    allowed = {
        normalize_tool_name(name): _is_allowed(name, verdict, diagnostics, line)
        for name, verdict in value.items()
    }
    # In opencode, `edit` also stands for writing files.
    if "edit" in allowed:
        allowed.setdefault("write", allowed["edit"])
    if allowed.pop("*", True):
        tools = tuple(f"!{tool}" for tool, is_allowed in allowed.items() if not is_allowed)
    else:
        tools = tuple(tool for tool, is_allowed in allowed.items() if is_allowed) or ("!*",)
    return ToolsField((*tools, *_read_denied_calls(value)), _read_allowed_agents(value))


def _read_allowed_agents(permission: Mapping[str, JsonValue]) -> tuple[str, ...] | None:
    verdicts = _get_call_verdicts(permission.get("task"))
    if verdicts is None:
        return None
    if verdicts.get("*") == "deny":
        return tuple(
            name for name, verdict in verdicts.items() if name != "*" and verdict != "deny"
        )
    return ("*", *(f"!{name}" for name, verdict in verdicts.items() if verdict == "deny"))


def _read_denied_calls(permission: Mapping[str, JsonValue]) -> Iterator[str]:
    """Yield excluding patterns for single calls of tools that are not denied completely."""
    for name, verdict in permission.items():
        tool = normalize_tool_name(name)
        calls = _get_call_verdicts(verdict) or {}
        if tool == "task" or calls.get("*") == "deny":
            continue
        yield from (
            f"!{_check_pattern(f'{tool}({call})')}"
            for call, call_verdict in calls.items()
            if call_verdict == "deny"
        )


def _get_call_verdicts(value: JsonValue) -> Mapping[str, JsonValue] | None:
    """Return the map of calls to verdicts, None if one verdict holds for all calls."""
    return value if isinstance(value, dict) else None


def _is_allowed(name: str, value: JsonValue, diagnostics: FileDiagnostics, line: int) -> bool:
    """Return whether the agent gets a tool; ValueError for an unknown verdict."""
    by_call = _get_call_verdicts(value)
    verdicts = [value] if by_call is None else list(by_call.values())
    unknown = [verdict for verdict in verdicts if verdict not in _VERDICTS]
    if unknown:
        raise ValueError(f"{name}: {unknown[0]!r} is not one of allow, ask, deny")
    denies_all = all(verdict == "deny" for verdict in verdicts) and bool(verdicts)
    if by_call is not None and normalize_tool_name(name) == "task":
        return bool(verdicts) and not denies_all
    if by_call is not None and by_call.get("*") == "deny" and not denies_all:
        diagnostics.add_warning(
            line,
            f"permission of {name}: allowing single calls of a denied tool is not supported, "
            "so the agent does not get the tool",
        )
        denies_all = True
    if "ask" in verdicts and not denies_all:
        diagnostics.add_note(line, f"permission of {name}: the session decides when to ask")
    return not denies_all


def _resolve_pattern(
    text: str, known: Collection[str], diagnostics: FileDiagnostics, line: int
) -> str:
    """Return the pattern with mudroom's name of the tool; ValueError for an unclear one."""
    name, bracket, calls = text.partition("(")
    is_excluded = name.startswith("!")
    tool = resolve_tool_name(name.removeprefix("!"), known, diagnostics, line)
    pattern = _check_pattern(f"{tool}{bracket}{calls}")
    return f"!{pattern}" if is_excluded else pattern


def _check_pattern(text: str) -> str:
    """Return a pattern in its shortest form; ValueError for an unclear one."""
    pattern = parse_tool_pattern(text)
    if not pattern.is_valid:
        raise ValueError(f"{text}: is not a tool pattern; write for example bash(git:*)")
    return f"{pattern.written_name}({pattern.calls})" if pattern.calls else pattern.written_name


def resolve_tool_name(
    name: str, known: Collection[str], diagnostics: FileDiagnostics, line: int
) -> str:
    """Return mudroom's name for a tool, or its pattern; warn about an unknown one."""
    name = name.strip()
    # The Gemini CLI writes `mcp_SERVER_TOOL`.
    gemini = _GEMINI_MCP.fullmatch(name)
    if gemini:
        name = f"mcp__{gemini[1]}__{gemini[2]}"
    elif name in ("mcp_*", "mcp__*"):
        name = "mcp__*"
    elif name.startswith("mcp__"):
        name = parse_tool_pattern(name).tool
    if name == "*" or name.startswith("mcp__"):
        return name
    tool = normalize_tool_name(name)
    if tool == "web_search":
        diagnostics.add_note(
            line,
            f"{name} is available only with --allow-net or an allow rule, on models whose provider "
            "searches the web",
        )
    elif tool == "web_fetch":
        diagnostics.add_note(line, f"{name} is available only with --allow-net or an allow rule")
    elif tool not in known:
        diagnostics.add_warning(line, str(UnknownName("tool", name, known)))
    return tool


def _parse_map(
    value: Mapping[str, JsonValue], known: Collection[str], diagnostics: FileDiagnostics, line: int
) -> ToolsField:
    if not all(isinstance(is_allowed, bool) for is_allowed in value.values()):
        raise ValueError("is not a map of names to true and false")
    tools = {name: resolve_tool_name(name, known, diagnostics, line) for name in value}
    if value.get("*") is False:
        return ToolsField(tuple(tools[name] for name, is_allowed in value.items() if is_allowed))
    denied = (f"!{tools[name]}" for name, is_allowed in value.items() if not is_allowed)
    return ToolsField(("*", *denied))
