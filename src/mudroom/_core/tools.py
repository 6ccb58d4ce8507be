"""Tools: a name, a text for the model, a JSON Schema and one async function."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct


class Effect(StrEnum):
    """Kinds of tools by effect: which calls may run again after an interruption, which in parallel.

    Example:
        @tool(effect=Effect.PURE)
        def double(number: int) -> int:
            "Twice a number."
            return 2 * number
    """

    PURE = "pure"
    """Changes nothing: may run again, always runs in parallel."""
    KEYED = "keyed"
    """Has a key (a file, a child): its effect happens exactly once; one call at a time per key."""
    EFFECTFUL = "effectful"
    """Any effect: it happens at most once, never in parallel with another call with an effect."""


class ToolResult(Struct, frozen=True, omit_defaults=True):
    """Result of a tool call for its three readers: the model, the user, a developer.

    Arguments:
        text: for the model.
        error: true if the call failed; `text` then says what to do instead.
        display: for the user, one line; "" means the first line of `text`.
        detail: for debugging; JSON values only.
        reads, changes: files that the call read or changed, relative to the workspace.
        spill: path of the whole output if `text` is only its head and tail.

    Example:
        @tool
        def stamp(path: str) -> ToolResult:
            "Stamp a document."
            return ToolResult(f"stamped {path}", display="stamped", changes=(path,))
    """

    text: str
    error: bool = False
    display: str = ""
    detail: dict[str, Any] = {}
    reads: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    spill: str = ""


def _no_key(_: Any) -> str | None:
    return None


class Tool(Struct, frozen=True, kw_only=True):
    """One tool. A tool is a value: to register it, put it into a list.

    Arguments:
        name: name by which the model calls it.
        description: text for the model.
        parameters: JSON Schema of the arguments, an object.
        parse: converts the model's arguments to the second argument of `run`. Raises ValueError
            with the path of the wrong argument and the reason.
        run: takes a ToolContext and the parsed arguments, returns a ToolResult. An exception
            becomes an error result for the model.
        effect: see Effect.
        key: returns the file or other thing that a call works on, or None, from the parsed
            arguments.
        argument_aliases: other names of arguments, each with its name in `parameters`.
        needs_confirmation: a user must approve each call.
        remind: takes a ToolContext, returns a note to add to the results of a turn, or None.

    Example:
        async def run(context: ToolContext, arguments: dict) -> ToolResult:
            return ToolResult(arguments["word"] * 2)

        twice = Tool(
            name="twice",
            description="Repeats a text.",
            parameters={"type": "object"},
            parse=dict,
            run=run,
        )
    """

    name: str
    description: str
    parameters: dict[str, Any]
    parse: Callable[[dict[str, Any]], Any]
    run: Callable[[Any, Any], Awaitable[ToolResult]]
    effect: Effect = Effect.EFFECTFUL
    key: Callable[[Any], str | None] = _no_key
    argument_aliases: Mapping[str, str] = {}
    needs_confirmation: bool = False
    remind: Callable[[Any], str | None] | None = None


_ALIASES = {
    "bash": "run_shell_command shell execute terminal exec_command",
    "read": "read_file readfile view notebookread open_file cat",
    "write": "write_file writefile create_file",
    "edit": "replace str_replace strreplacefile edit_file multiedit",
    "glob": "find_files",
    "grep": "grep_search search_file_content",
    "ls": "list list_directory",
    "web_fetch": "webfetch fetchurl",
    "web_search": "websearch google_web_search searchweb",
    "todo": "todowrite todo_write write_todos settodolist",
    "task": "agent invoke_agent spawn_agent delegate subagent",
    "skill": "activate_skill load_skill",
    "ask_user": "askuserquestion question",
}
_CANONICAL = {alias: name for name, aliases in _ALIASES.items() for alias in aliases.split()}


def canonical_tool_name(name: str) -> str:
    """Return our name of a tool that another program calls `name`; an unknown name unchanged.

    The table is in `docs/tools.md`: Claude Code, Gemini CLI, opencode, Codex, kimi-cli, deepagents.
    """
    lower = name.lower()
    if lower in _ALIASES:
        return lower
    return _CANONICAL.get(lower, name)
