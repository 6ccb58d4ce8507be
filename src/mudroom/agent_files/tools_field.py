"""The tools an agent file allows or forbids, in any tool's spelling, as patterns of our names.

A file never gets more than it says: what narrows and cannot be understood is left out, or costs the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from msgspec import Struct

from .._core.tools import canonical_tool_name
from .diagnostics import FileDiagnostics

BUILTIN_TOOLS = ("bash", "read", "write", "edit", "glob", "grep", "todo", "task", "skill")
"""Tools that are always known."""

_NEAREST = {"ls": "glob"}
_PART = re.compile(r"[^,(]+(?:\([^)]*\)?)?[^,(]*")
_CALLED = re.compile(r"([^()]+)\((.*)\)")
_GEMINI_MCP = re.compile(r"mcp_([^_]+)_(.+)")


class ToolsField(Struct, frozen=True):
    """What a list of tools says: names or patterns, and the agents that `task` is limited to, likewise (None: not limited)."""

    tools: tuple[str, ...]
    agents: tuple[str, ...] | None = None


def parse_names(value: Any) -> list[str]:
    """The names in a list of texts, or in one text with commas. Raises ValueError for anything else."""
    if value is None:
        return []
    if isinstance(value, str):
        return [part.strip() for part in _PART.findall(value) if part.strip()]
    if isinstance(value, list) and all(isinstance(name, str) for name in cast("list[Any]", value)):
        return [name.strip() for name in cast("list[str]", value) if name.strip()]
    raise ValueError("is no list of names")


def parse_allowed(
    value: Any, known: Iterable[str], notes: FileDiagnostics, line: int
) -> ToolsField:
    """The tools a file allows: a list, a text with commas, or a map of names to true and false.

    Arguments:
        known: names of tools there are. Names that nobody knows are kept, with a warning.

    Raises ValueError when it cannot be understood.
    """
    if isinstance(value, Mapping):
        return _mapped(cast("Mapping[str, Any]", value), known, notes, line)
    tools: dict[str, None] = {}
    agents: tuple[str, ...] | None = None
    for name in parse_names(value):
        called = _CALLED.fullmatch(name)
        tool = resolve_tool_name(called[1] if called else name, known, notes, line)
        if called and tool == "task":
            agents = tuple(parse_names(called[2]))
        elif called:
            tool = _inside(tool, called[2])
        tools[tool] = None
    return ToolsField(tuple(tools), agents)


def _inside(tool: str, what: str) -> str:
    """A tool, or the pattern that is about some calls of it. Raises ValueError when it cannot be understood which."""
    what = what.strip()
    if tool == "bash" and ":*" in what[:-2]:
        raise ValueError(f"{tool}({what}): :* is not at the end")
    return f"{tool}({what})" if what not in ("", "*", ":*") else tool


def parse_forbidden(
    value: Any, known: Iterable[str], notes: FileDiagnostics, line: int
) -> tuple[str, ...]:
    """The tools, and calls of tools, a file forbids, as patterns that take away."""
    names = [(name, _CALLED.fullmatch(name)) for name in parse_names(value)]
    return tuple(
        f"!{_inside(resolve_tool_name(called[1], known, notes, line), called[2])}"
        if called
        else f"!{resolve_tool_name(name, known, notes, line)}"
        for name, called in names
    )


def parse_permission(value: Any, notes: FileDiagnostics, line: int) -> ToolsField:
    """opencode's `permission`: patterns of what it denies, or, where it denies "*", the tools it does not; agents for `task`.

    Raises ValueError when it cannot be understood.
    """
    if value in ("allow", "ask", "deny"):
        value = {"*": value}
    if not isinstance(value, Mapping):
        raise ValueError("is no map of tools to allow, ask or deny")
    verdicts = {
        canonical_tool_name(name): _verdict(name, said, notes, line)
        for name, said in cast("Mapping[str, Any]", value).items()
    }
    if "edit" in verdicts:
        verdicts.setdefault("write", verdicts["edit"])
    limits: Any = cast("Mapping[str, Any]", value).get("task")
    agents: tuple[str, ...] | None = None
    if isinstance(limits, Mapping):
        said = cast("Mapping[str, Any]", limits)
        few = said.get("*") == "deny"
        agents = tuple(name for name in said if name != "*" and said[name] != "deny")
        agents = agents if few else ("*", *(f"!{name}" for name in said if said[name] == "deny"))
    barred = tuple(_parts(cast("Mapping[str, Any]", value)))
    if verdicts.pop("*", True):
        return ToolsField(
            (*(f"!{tool}" for tool, given in verdicts.items() if not given), *barred), agents
        )
    return ToolsField(
        (*(tuple(tool for tool, given in verdicts.items() if given) or ("!*",)), *barred), agents
    )


def _parts(value: Mapping[str, Any]) -> Iterator[str]:
    """Calls that a map denies of tools it does not deny whole."""
    for name, said in value.items():
        calls: Mapping[str, Any] = (
            cast("Mapping[str, Any]", said) if isinstance(said, Mapping) else {}
        )
        if (tool := canonical_tool_name(name)) != "task" and calls.get("*") != "deny":
            yield from (
                f"!{_inside(tool, what)}" for what, given in calls.items() if given == "deny"
            )


def _verdict(name: str, said: Any, notes: FileDiagnostics, line: int) -> bool:
    """Whether an agent gets the tool."""
    if isinstance(said, Mapping):
        every = list(cast("Mapping[str, Any]", said).values())
        if canonical_tool_name(name) == "task" and all(
            one in ("allow", "ask", "deny") for one in every
        ):
            return any(one != "deny" for one in every)
        whole = cast("Mapping[str, Any]", said).get("*") == "deny"
        if whole and any(one != "deny" for one in every):
            notes.add_warning(
                line,
                f"permission of {name}: what it allows of a tool it denies is not kept, so the agent does not get it",
            )
        unknown = [one for one in every if one not in ("allow", "ask", "deny")]
        said = unknown or (
            "deny" if whole or set(every) == {"deny"} else "ask" if "ask" in every else "allow"
        )
    if said not in ("allow", "ask", "deny"):
        raise ValueError(f"{name}: {said!r} is none of allow, ask, deny")
    if said == "ask":
        notes.add_note(line, f"permission of {name}: whether to ask is for the session to say")
    return said != "deny"


def resolve_tool_name(name: str, known: Iterable[str], notes: FileDiagnostics, line: int) -> str:
    """Our name, or pattern, for a tool; a warning for one that nobody knows."""
    name = name.strip()
    if found := _GEMINI_MCP.fullmatch(name):
        name = f"mcp__{found[1]}__{found[2]}"
    elif name in ("mcp_*", "mcp__*"):
        name = "mcp__*"
    elif name.startswith("mcp__") and name.count("__") == 1:
        name = f"{name}__*"
    if name == "*" or name.startswith("mcp__"):
        return name
    tool = _NEAREST.get(canonical_tool_name(name), canonical_tool_name(name))
    if tool not in BUILTIN_TOOLS and tool not in known:
        notes.add_warning(line, f"no tool is called {name!r} here")
    return tool


def _mapped(
    value: Mapping[str, Any], known: Iterable[str], notes: FileDiagnostics, line: int
) -> ToolsField:
    if not all(isinstance(wanted, bool) for wanted in value.values()):
        raise ValueError("is no map of names to true and false")
    names = {name: resolve_tool_name(name, known, notes, line) for name in value}
    if value.get("*") is False:
        return ToolsField(tuple(names[name] for name, wanted in value.items() if wanted))
    return ToolsField(("*", *(f"!{names[name]}" for name, wanted in value.items() if not wanted)))
