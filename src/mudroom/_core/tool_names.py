"""Names of tools: those of other programs mapped to mudroom's own, and patterns that select some.

A pattern is an entry of an agent's `tools`, such as `read`, `mcp__*`, `bash(git:*)`, `!write`. It
names a tool, or several with `*`; a leading `!` excludes. Text in brackets limits a pattern to some
calls of the tool. It is interpreted by the permission policy, not here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

from msgspec import Struct

from .._platform.patterns import compile_later

# Models fall back to the tool names they were trained with, and agent files are shared with other
# programs. Compared in lower case.
_ALIASES = {
    "bash": "run_shell_command shell shell_command local_shell container.exec developer__shell "
    "execute terminal exec_command background_run",
    "read": "read_file readfile view view_image open_file cat",
    "write": "write_file writefile create_file",
    "edit": "replace str_replace strreplacefile edit_file multiedit",
    "glob": "find_files ls list list_directory",
    "grep": "grep_search search_file_content",
    "web_fetch": "webfetch fetchurl",
    "web_search": "websearch google_web_search searchweb",
    "todo": "todowrite todo_write write_todos settodolist update_plan",
    "task": "agent invoke_agent delegate_to_agent spawn_agent spawn_teammate delegate subagent",
    "wait": "waitfor wait_agent taskoutput bashoutput check_background check_inbox read_inbox "
    "list_agents listagents list_teammates",
    "send_message": "sendmessage send_input followup_task broadcast plan_approval review_plan "
    "shutdown_response",
    "task_stop": "taskstop interrupt_agent close_agent killshell killbash shutdown_request "
    "request_shutdown",
    "compact": "compact_conversation",
    "task_create": "taskcreate create_task tracker_create_task",
    "task_update": "taskupdate update_task claim_task complete_task tracker_update_task "
    "tracker_add_dependency",
    "task_list": "tasklist list_tasks tracker_list_tasks tracker_visualize",
    "task_get": "taskget get_task tracker_get_task",
    "skill": "activate_skill load_skill",
    "ask_user": "askuserquestion question",
}
# Tools of MCP servers are named `mcp__SERVER__TOOL`.
SERVER_PREFIX = "mcp__"
# Calls the tool named in its arguments. The record has that tool's name.
FORWARDING_TOOL = "mcp_call"

# Providers refuse any other character in the name of a tool.
_ILLEGAL = compile_later(r"[^A-Za-z0-9_-]")

# Known so that an agent file that names them gets no warning about a misspelt tool.
_ONLY_ELSEWHERE = """
notebookedit notebookread exitplanmode enterplanmode slashcommand lsp toolsearch
save_memory apply_patch patch codesearch read_many_files write_stdin batch list_dir tree
"""
# Some tools of other programs are one of mudroom's with an argument fixed.
_IMPLIED_ARGUMENTS: dict[str, dict[str, Any]] = {
    "background_run": {"background": True},
    "broadcast": {"to": "*"},
    "shutdown_request": {"how": "ask"},
    "request_shutdown": {"how": "ask"},
    "shutdown_response": {"to": "parent"},
    "claim_task": {"status": "in_progress"},
    "complete_task": {"status": "completed"},
    "killbash": {"how": "now"},
    "killshell": {"how": "now"},
    "check_background": {"timeout": 0},
    "check_inbox": {"timeout": 0},
    "read_inbox": {"timeout": 0},
    "list_agents": {"timeout": 0},
    "listagents": {"timeout": 0},
    "list_teammates": {"timeout": 0},
    "bashoutput": {"timeout": 0},
}
STAND_INS: dict[str, tuple[str, dict[str, Any]]] = {"task_list": ("wait", {"timeout": 0})}
"""The tool and arguments to use in place of a tool the run does not have.

Without a task board, `task_list` means kimi-cli's TaskList, which lists background work.
"""

REPLACEMENTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "ask_user": ("End with your question as your answer.", ()),
    "enterplanmode": ("End with your plan as your answer.", ()),
    "exitplanmode": ("End with your plan as your answer.", ()),
    "submit_plan": ("End with your plan as your answer; your lead approves or refuses it.", ()),
    "request_plan": (
        "Start a child by task with plan=true and a name. Its report is the plan; "
        "send_message to that name with approve=true or approve=false answers it.",
        (),
    ),
    "batch": ("Send the calls beside each other in one answer.", ()),
    "apply_patch": ("Change a file with edit, or write a whole one with write.", ("edit", "write")),
    "patch": ("Change a file with edit, or write a whole one with write.", ("edit", "write")),
    "notebookedit": ("A notebook is JSON text: read it, then change it with edit.", ("edit",)),
    "notebookread": ("A notebook is JSON text: read it with read.", ("read",)),
    "read_many_files": ("Find files with glob, and read each with read.", ("glob", "read")),
    "list_dir": ("List a folder with glob, without a pattern.", ("glob",)),
    "tree": ("List a folder with glob; the pattern ** lists all below it.", ("glob",)),
    "codesearch": ("Search the files with grep.", ("grep",)),
    "write_stdin": (
        "A command takes no input while it runs: give it all with the command, by a pipe or a "
        "here-document.",
        ("bash",),
    ),
}
"""How to do without another program's tool: advice for the model, and the tools it needs."""

_EDITORS = frozenset(
    ("str_replace_based_edit_tool", "str_replace_editor", "text_editor", "developer__text_editor")
)
_EDITOR_COMMANDS = {"view": "read", "create": "write", "write": "write", "str_replace": "edit"}

_CANONICAL = {alias: name for name, aliases in _ALIASES.items() for alias in aliases.split()}


def normalize_tool_name(name: str) -> str:
    """Return mudroom's name for another program's tool; an unknown name stays unchanged."""
    lower = name.lower()
    if lower in _ALIASES:
        return lower
    return _CANONICAL.get(lower, name)


def split_editor_call(name: str, arguments: Mapping[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """Return the tool and arguments meant by a text editor call; None for other calls.

    Anthropic's text editor is several tools under one name, told apart by its argument `command`.
    Raises ValueError for a command without an equivalent.
    """
    if name.lower() not in _EDITORS:
        return None
    command = arguments.get("command")
    if not isinstance(command, str) or command not in _EDITOR_COMMANDS:
        raise ValueError(
            f"command: {command!r} is not one of {', '.join(_EDITOR_COMMANDS)}. To insert text or "
            "to undo a change, use edit: its new_string repeats old_string with what you add."
        )
    others = {key: value for key, value in arguments.items() if key != "command"}
    if command == "str_replace" and not {"new_str", "new_string"} & others.keys():
        others["new_str"] = ""  # the text editor deletes without it
    return _EDITOR_COMMANDS[command], others


def make_server_tool_name(server: str, tool: str) -> str:
    tool = tool if tool == "*" else _ILLEGAL.sub("_", tool)
    return f"{SERVER_PREFIX}{_ILLEGAL.sub('_', server)}__{tool}"


def make_server_pattern(server: str) -> str:
    return make_server_tool_name(server, "*")


def add_implied_arguments(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {**_IMPLIED_ARGUMENTS.get(name.lower(), {}), **arguments}


def is_known_elsewhere(name: str) -> bool:
    """Return whether other programs or MCP servers have a tool of this name."""
    is_listed = normalize_tool_name(name) in _ALIASES or name.lower() in _ONLY_ELSEWHERE.split()
    return is_listed or name.startswith("mcp__")


def choose_result_name(called: str, executed: str) -> str:
    """Return the tool name for the result of a call, which must match the call."""
    return called if called == FORWARDING_TOOL else executed


# Possessive quantifiers keep the match linear: patterns come from files of others.
_PATTERN = compile_later(r"(!?)\s*+([^()]*+)(?:(\()(.*?)(\)?))?", re.DOTALL)
_ALL_CALLS = ("", "*", ":*")


class ToolPattern(Struct, frozen=True):
    """One parsed tool pattern, with its text as written.

    Arguments:
        tool: mudroom's name for the tool, or a name with `*`.
        written_name: the name as written, since a tool may really be called that.
        calls: text in the brackets, "" for all calls.
        is_excluded: true if the pattern starts with `!`.
        is_valid: false if the name or a bracket is missing.
    """

    text: str
    tool: str
    written_name: str
    calls: str = ""
    has_brackets: bool = False
    is_excluded: bool = False
    is_valid: bool = True

    def matches_tool(self, name: str) -> bool:
        if name in (self.tool, self.written_name):
            return True
        return any(
            "*" in pattern and fnmatchcase(name, pattern)
            for pattern in (self.written_name, self.tool)
        )


@lru_cache(maxsize=4096)
def parse_tool_pattern(text: str) -> ToolPattern:
    """Parse one pattern. Never raises: `is_valid` is false for one that cannot be understood."""
    match = _PATTERN.fullmatch(text.strip())
    if match is None:
        return ToolPattern(text, text, text, is_valid=False)
    bang, name, opening, calls, closing = match.groups(default="")
    name, calls = name.rstrip(), calls.strip()
    # `mcp__git` alone names a whole server, as in Claude Code's files.
    is_server = name.startswith("mcp__") and name.count("__") == 1 and not name.endswith("*")
    return ToolPattern(
        text,
        f"{name}__*" if is_server else normalize_tool_name(name),
        name,
        "" if calls in _ALL_CALLS else calls,
        has_brackets=bool(opening),
        is_excluded=bool(bang),
        is_valid=bool(name) and bool(opening) == bool(closing),
    )


def parse_tool_patterns(texts: Iterable[str] | None) -> tuple[ToolPattern, ...]:
    return tuple(map(parse_tool_pattern, texts or ()))


def select_tools(names: Iterable[str], patterns: Iterable[str] | None) -> tuple[str, ...]:
    """Select the names that some pattern includes and none excludes; None selects all.

    `bash(git:*)` includes the tool bash, while `!bash(git push:*)` does not exclude it: which calls
    are allowed is up to the permission policy.
    """
    if patterns is None:
        return tuple(names)
    return _select_tools(tuple(names), tuple(patterns))


# Cached because all children of one answer ask for the same selection.
@lru_cache(maxsize=256)
def _select_tools(names: tuple[str, ...], patterns: tuple[str, ...]) -> tuple[str, ...]:
    parsed = parse_tool_patterns(patterns)
    included = [pattern for pattern in parsed if not pattern.is_excluded]
    excluded = [pattern for pattern in parsed if pattern.is_excluded and not pattern.has_brackets]
    return tuple(
        name
        for name in names
        if any(pattern.matches_tool(name) for pattern in included)
        and not any(pattern.matches_tool(name) for pattern in excluded)
    )


def list_server_patterns(tools: Iterable[str]) -> tuple[str, ...]:
    """Return the entries of a brief's tools that are about tools of MCP servers."""
    return tuple(text for text in tools if text.startswith(("mcp__", "!mcp__")))


def narrow_server_patterns(
    granted: Iterable[str], patterns: Iterable[str] | None
) -> tuple[str, ...]:
    """Narrow granted server patterns to what an agent's own patterns select.

    A server's tools may not be known yet, so the result consists of patterns as well: those granted
    and selected, followed by exclusions.
    """
    granted = tuple(granted)
    if patterns is None or not granted:
        return granted
    parsed = parse_tool_patterns(patterns)
    included = [pattern for pattern in parsed if not pattern.is_excluded]
    excluded = [
        pattern.tool for pattern in parsed if pattern.is_excluded and not pattern.has_brackets
    ]
    kept: dict[str, None] = {}
    for grant in granted:
        if grant.startswith("!"):
            continue
        for pattern in included:
            if pattern.matches_tool(grant):
                kept[grant] = None
            elif fnmatchcase(pattern.tool, grant):
                kept[pattern.tool] = None
    selected = [
        grant for grant in kept if not any(fnmatchcase(grant, pattern) for pattern in excluded)
    ]
    before = [grant[1:] for grant in granted if grant.startswith("!")]
    exclusions = dict.fromkeys(
        f"!{pattern}"
        for pattern in (*before, *excluded)
        if any(fnmatchcase(pattern, grant) or fnmatchcase(grant, pattern) for grant in selected)
    )
    return (*selected, *exclusions) if selected else ()


def list_call_patterns(patterns: Iterable[str] | None) -> tuple[str, ...]:
    """Return the patterns with brackets, which restrict individual calls.

    `read(a.txt)` is left out if another pattern, such as `read`, includes all calls of the tool.
    """
    return _list_call_patterns(tuple(patterns)) if patterns else ()


@lru_cache(maxsize=256)
def _list_call_patterns(patterns: tuple[str, ...]) -> tuple[str, ...]:
    parsed = parse_tool_patterns(patterns)
    whole = [pattern for pattern in parsed if not pattern.has_brackets and not pattern.is_excluded]
    return tuple(
        pattern.text
        for pattern in parsed
        if pattern.has_brackets
        and (pattern.is_excluded or not any(other.matches_tool(pattern.tool) for other in whole))
    )
