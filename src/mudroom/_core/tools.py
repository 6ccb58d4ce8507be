"""What a tool is: a name, a text for the model, a schema, and one async call that returns a value, also when it fails."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct


class Effect(StrEnum):
    """What may be done again after an interruption, and what may run beside what.

    Example:
        @tool(effect=Effect.PURE)
        def double(number: int) -> int:
            "Twice a number."
            return 2 * number
    """

    PURE = "pure"
    """Changes nothing: may run again, always runs in parallel."""
    KEYED = "keyed"
    """Its effect is known by a key (a file, a child): happens exactly once; one at a time for each key."""
    EFFECTFUL = "effectful"
    """Anything may happen: at most once, never beside another call that changes something."""


class ToolResult(Struct, frozen=True, omit_defaults=True):
    """What came of one call: three readers, three fields.

    Arguments:
        text: for the model.
        error: whether the call failed; `text` then says what to do instead.
        display: for the person, one line; empty means the first line of `text`.
        detail: for whoever debugs; JSON values only.
        reads, changes: files the call read or changed, relative to the workspace.
        spill: path of the whole output when `text` is only head and tail of it.

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
    """One ability. A tool is a value: registering it is putting it in a list.

    Arguments:
        name: what the model calls it by.
        description: what the model reads about it.
        parameters: JSON Schema of the arguments, an object.
        parse: arguments as the model sent them -> what `run` takes; raises ValueError that names the path and the reason.
        run: (ToolContext, parsed arguments) -> ToolResult. May raise: the model is told.
        effect: see Effect.
        key: parsed arguments -> the file (or other thing) the call works on, or None.
        spellings: other names of arguments -> the names in `parameters`.
        needs_confirmation: a person must say yes first.
        remind: ToolContext -> a word to add to this turn's results, or None; asked once a turn.

    Example:
        async def run(ctx: ToolContext, given: dict) -> ToolResult:
            return ToolResult(given["word"] * 2)

        twice = Tool(name="twice", description="Says a word twice.", parameters={"type": "object"}, parse=dict, run=run)
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
    """Our name for a tool, whatever another system calls it; an unknown name comes back as it was.

    The table is that of `docs/tools.md`: Claude Code, Gemini CLI, opencode, Codex, kimi-cli, deepagents.
    """
    low = name.lower()
    return _CANONICAL.get(low, low if low in _ALIASES else name)
