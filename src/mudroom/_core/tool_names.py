"""Tool names of other programs, mapped to mudroom's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._platform.lazy_pattern import compile_later

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
    """Return mudroom's name for another program's tool; an unknown name stays unchanged.

    `docs/tools.md` shows the table for Claude Code, Gemini CLI, opencode, Codex, kimi-cli and
    deepagents.
    """
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
    """Name a tool of an MCP server for models, rules and the record."""
    tool = tool if tool == "*" else _ILLEGAL.sub("_", tool)
    return f"{SERVER_PREFIX}{_ILLEGAL.sub('_', server)}__{tool}"


def make_server_pattern(server: str) -> str:
    """Make the pattern that matches all tools of a server."""
    return make_server_tool_name(server, "*")


def add_implied_arguments(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Add the arguments implied by another program's name for the tool."""
    return {**_IMPLIED_ARGUMENTS.get(name.lower(), {}), **arguments}


def is_known_elsewhere(name: str) -> bool:
    """Return whether other programs or MCP servers have a tool of this name."""
    is_listed = normalize_tool_name(name) in _ALIASES or name.lower() in _ONLY_ELSEWHERE.split()
    return is_listed or name.startswith("mcp__")


def choose_result_name(called: str, executed: str) -> str:
    """Return the tool name for the result of a call, which must match the call."""
    return called if called == FORWARDING_TOOL else executed
