"""What the command line provides: sessions made from plans, prompts from files, records."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from ..file_prompts import FilePrompt

if TYPE_CHECKING:
    from mudroom import Approver, ServerSpec, Session, Tool


class EditorSessionPlan(Struct, frozen=True, kw_only=True):
    """The session to open. "" as model or mode means that of the settings."""

    cwd: str  # absolute
    servers: tuple[ServerSpec, ...] = ()  # the client's
    model: str = ""
    mode: str = ""
    resume: str = ""  # id of the session to continue, "" for a new one
    id: str = ""  # of a new session, "" for any
    tools: tuple[Tool, ...] = ()  # replace built-in ones


class ServerCommand(Struct, frozen=True):
    """A prompt of an MCP server as a command. `hint` shows its arguments."""

    name: str  # without a slash
    description: str
    hint: str


class RecordedSession(Struct, frozen=True, kw_only=True):
    id: str
    cwd: str
    title: str
    written: float  # time in seconds since 1970


class CommandLine(Struct, frozen=True, kw_only=True):
    """Functions provided by the command line.

    Arguments:
        prepare: makes a plan's session without opening it. Raises UsageError, RequestError.
        fetch_server_prompt: takes a slash command and the words after it, and returns the text of
            the server's prompt; None for any other command. Raises MudroomError.
        list_sessions: returns a folder's last sessions; None for all folders.
        preload: imports what sessions need; called in a thread.
        reads_unsaved: whether `read` shows text not yet saved in the editor.
    """

    prepare: Callable[[EditorSessionPlan, Approver], Session]
    load_prompts: Callable[[Session], Sequence[FilePrompt]]
    list_server_prompts: Callable[[Session], Sequence[ServerCommand]]
    fetch_server_prompt: Callable[[Session, str, str], Awaitable[str | None]]
    list_models: Callable[[], Sequence[str]]
    list_sessions: Callable[[str | None], Awaitable[Sequence[RecordedSession]]]
    delete_session: Callable[[str], Awaitable[None]]
    has_model: Callable[[str], bool]
    preload: Callable[[], object]
    reads_unsaved: bool = False
