"""Agent files of GitHub Copilot and VS Code: our equivalents of their tools and models."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cache

from ..._core.tool_names import (
    is_known_elsewhere,
    make_server_pattern,
    make_server_tool_name,
    normalize_tool_name,
)
from ..._platform.patterns import compile_later
from .safe_read import FileDiagnostics

# Tools of GitHub Copilot and VS Code, in lower case, by their equivalents here.
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
_GITHUB_GROUPS = "agent edit execute read runcommands runnotebooks runtasks search todo vscode web"
_ONLY_IN_VSCODE = (
    "activepullrequest awaitterminal changes copilotcodingagent createandruntask createdirectory "
    "extensions getterminaloutput githubrepo installextension new newworkspace opensimplebrowser "
    "problems readcelloutput rendermermaiddiagram runnotebooks runtask runtasks runtests "
    "searchresults terminalcommand terminallastcommand terminalselection testfailure "
    "updateuserpreferences vscode vscodeapi"
)


# GitHub writes versions of Claude with a dot.
_CLAUDE_VERSION = compile_later(r"\b(claude-(?:[a-z]+-)?\d+)\.(\d+)")


def is_github_file(path: str) -> bool:
    """Return whether a file is a GitHub Copilot agent, wherever it is installed."""
    return path.endswith(".agent.md") or "/.github/agents/" in path


@cache
def _list_github_tools() -> dict[str, tuple[str, ...]]:
    return {
        alias: tuple(tools.split())
        for tools, aliases in _GITHUB_TOOLS.items()
        for alias in aliases.split()
    }


def translate_tools(
    names: list[str], known: Collection[str], diagnostics: FileDiagnostics, line: int
) -> list[str]:
    """Replace the names of GitHub's tools with mudroom's; note those without a counterpart."""
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
    """Find the equivalents of a GitHub tool; None for another program's name."""
    key = name.lower()
    if key == "edit" and is_github_file(path):
        return ("edit", "write")  # a group there, one tool elsewhere
    if tools := _list_github_tools().get(key):
        return tools
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


def read_models(names: Iterable[str]) -> str:
    """Convert model names such as "Claude Sonnet 4.5 (copilot)" to one model string."""
    models = [
        name.strip().strip("'\"").removesuffix(" (copilot)").lower().replace(" ", "-")
        for name in names
    ]
    return _CLAUDE_VERSION.sub(r"\1-\2", ",".join(models))
