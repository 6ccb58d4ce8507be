"""Values that the command line provides: the session of a plan, prompts of files, records."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from ..._core.ports import Approver
    from ...integrations.mcp_servers.spec import ServerSpec
    from ...permissions.rules import Permissions
    from ...session import Session


class SessionPlan(Struct, frozen=True, kw_only=True):
    """The session to open.

    Arguments:
        cwd: absolute path of its folder.
        servers: MCP servers of the client.
        model: model string, "" for that of the settings.
        mode: permission mode, "" for that of the settings.
        resume: id of the session to continue, "" for a new one.
        id: id of a new session, "" for any.
    """

    cwd: str
    servers: tuple[ServerSpec, ...] = ()
    model: str = ""
    mode: str = ""
    resume: str = ""
    id: str = ""


class PlannedSession(Struct, frozen=True, kw_only=True):
    """A session that is not open yet.

    Arguments:
        permissions: its rules and mode.
        home: mudroom's state folder. user_home: home of the user.
    """

    session: Session
    permissions: Permissions
    home: str
    user_home: str


class FilePrompt(Struct, frozen=True, kw_only=True):
    """A prompt of a file: a command or a skill.

    Arguments:
        name: without a slash.
        format_prompt: returns the prompt of a call with these arguments, "" if it is empty.
    """

    name: str
    description: str
    format_prompt: Callable[[str], str]


class RecordedSession(Struct, frozen=True, kw_only=True):
    """A session in a list.

    Arguments:
        written: time of the last write, seconds since 1970.
    """

    id: str
    cwd: str
    title: str
    written: float


class CommandLine(Struct, frozen=True, kw_only=True):
    """Functions of the command line.

    Arguments:
        prepare: makes the session of a plan. Raises UsageError, RequestError.
        load_prompts: returns the prompts of the files of an open session.
        list_models: returns the model strings that work here.
        list_sessions: returns the last sessions of a folder; None for all folders.
        delete_session: deletes a recorded session. Raises MudroomError.
        has_model: returns whether a model is set up for a folder.
        preload: imports what sessions need; called in a thread.
    """

    prepare: Callable[[SessionPlan, Approver], PlannedSession]
    load_prompts: Callable[[Session], Sequence[FilePrompt]]
    list_models: Callable[[], Sequence[str]]
    list_sessions: Callable[[str | None], Awaitable[Sequence[RecordedSession]]]
    delete_session: Callable[[str], Awaitable[None]]
    has_model: Callable[[str], bool]
    preload: Callable[[], object]
