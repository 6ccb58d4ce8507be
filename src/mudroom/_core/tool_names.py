"""Names of tools in other programs, mapped to the names that mudroom uses."""

from __future__ import annotations

_ALIASES = {
    "bash": "run_shell_command shell execute terminal exec_command",
    "read": "read_file readfile view notebookread open_file cat",
    "write": "write_file writefile create_file",
    "edit": "replace str_replace strreplacefile edit_file multiedit",
    "glob": "find_files ls list list_directory",
    "grep": "grep_search search_file_content",
    "web_fetch": "webfetch fetchurl",
    "web_search": "websearch google_web_search searchweb",
    "todo": "todowrite todo_write write_todos settodolist",
    "task": "agent invoke_agent spawn_agent delegate subagent",
    "skill": "activate_skill load_skill",
    "ask_user": "askuserquestion question",
}
_ONLY_ELSEWHERE = """
notebookedit bashoutput killshell killbash exitplanmode enterplanmode slashcommand lsp taskoutput
taskstop taskcreate taskget tasklist taskupdate toolsearch save_memory apply_patch update_plan
codesearch
"""
_CANONICAL = {alias: name for name, aliases in _ALIASES.items() for alias in aliases.split()}


def normalize_tool_name(name: str) -> str:
    """Return mudroom's name for another program's tool. Return an unknown name unchanged.

    The table is in `docs/tools.md`: Claude Code, Gemini CLI, opencode, Codex, kimi-cli, deepagents.
    """
    lower = name.lower()
    if lower in _ALIASES:
        return lower
    return _CANONICAL.get(lower, name)


def is_known_elsewhere(name: str) -> bool:
    """Return whether a tool of another program, or of an MCP server, has this name."""
    is_listed = normalize_tool_name(name) in _ALIASES or name.lower() in _ONLY_ELSEWHERE.split()
    return is_listed or name.startswith("mcp__")
