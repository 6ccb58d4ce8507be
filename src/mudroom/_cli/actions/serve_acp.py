"""Runs the ACP server: an editor sends requests on stdin and reads answers from stdout."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from mudroom_hosts.acp.server import AcpServer
from mudroom_hosts.acp.setup import CommandLine, RecordedSession, ServerCommand
from mudroom_hosts.line_streams import LineInput

from ..._platform.event_loop import run_event_loop
from ..output.progress import make_notice_printer, print_notice
from .serve_lines import serve_lines

if TYPE_CHECKING:
    from mudroom_hosts.acp.setup import EditorSessionPlan
    from mudroom_hosts.file_prompts import FilePrompt

    from ..._core.ports import Approver
    from ..._session.session import Session


def serve_acp(*, reads_unsaved: bool, is_check: bool, quiet: bool, **flags: object) -> int:
    """Serve one editor until it closes the connection.

    With `is_check`, only print the providers and whether a model is set up. With `reads_unsaved`,
    `read` shows text the editor has not yet saved.
    """
    command_line = make_command_line(flags, reads_unsaved=reads_unsaved)
    if is_check:
        return _check_setup(command_line, flags)
    show = make_notice_printer(quiet=quiet, once=True)
    serving = serve_lines(
        lambda write: AcpServer(command_line, write, show),
        lambda server: server.serve(LineInput(sys.stdin.fileno()).read()),
        show,
        remedy="session/load continues the sessions",
    )
    return run_event_loop(serving)


# Listing a session means reading its record.
_MAX_LISTED = 200


def make_command_line(flags: Mapping[str, object], *, reads_unsaved: bool = False) -> CommandLine:
    def has_model(folder: str) -> bool:
        from . import open_session  # imports sessions, which `initialize` does not need
        from .load_settings import load_settings

        return open_session.has_model(load_settings(folder, **flags))

    return CommandLine(
        prepare=partial(prepare_session, flags),
        load_prompts=_load_prompts,
        list_server_prompts=list_server_prompts,
        fetch_server_prompt=fetch_server_prompt,
        list_models=_list_models,
        list_sessions=_list_sessions,
        delete_session=_delete_session,
        has_model=has_model,
        preload=_preload,
        reads_unsaved=reads_unsaved,
    )


def _check_setup(command_line: CommandLine, flags: Mapping[str, Any]) -> int:
    from .providers import print_providers

    print_providers(**flags)
    if command_line.has_model("."):
        return 0
    print_notice("no model is set up. Set the variable of a provider, then start the editor again")
    return 1


def _preload() -> None:
    # Slow to import, and needed by the first session.
    import_module("mudroom_hosts.acp.editor_session")
    import_module(f"{__package__}.open_session")
    import_module(f"{__package__}.programs.load_programs")


def prepare_session(
    flags: Mapping[str, object], plan: EditorSessionPlan, approver: Approver
) -> Session:
    """Make a session from settings, flags, and the user's choices in the editor."""
    from .load_permissions import load_permissions
    from .load_settings import load_settings
    from .open_session import create_session
    from .programs.load_programs import load_programs
    from .session_start import SessionStart

    settings = load_settings(plan.cwd, **flags)
    settings = replace(settings, permission_mode=plan.mode or settings.permission_mode)
    programs = load_programs(settings, plan.cwd)
    names = {server.name for server in plan.servers}
    # The editor's servers replace servers from files with the same name; an agent's own servers are
    # known only to that agent.
    from_files = programs.servers if programs else ()
    others = [each for each in from_files if each.agent or each.name not in names]
    return create_session(
        settings,
        plan.cwd,
        load_permissions(settings, plan.cwd, can_ask=True, accepts_unknown=True),
        SessionStart(resume=plan.resume, id=plan.id),
        programs=programs,
        mcp_servers=[*plan.servers, *others],
        approver=approver,
        prices=True,
        tools=plan.tools,
        **({"model": plan.model} if plan.model else {}),
    )


def _load_prompts(session: Session) -> Sequence[FilePrompt]:
    from .prompt_files import list_file_prompts

    return list_file_prompts(session)


def list_server_prompts(session: Session) -> Sequence[ServerCommand]:
    if not session.mcp.servers:
        return ()
    from ..._projections.safe_text import sanitize_line
    from .prompts import describe_arguments

    return [
        ServerCommand(prompt.name, sanitize_line(prompt.description), describe_arguments(prompt))
        for prompt in session.mcp.prompts
    ]


async def fetch_server_prompt(session: Session, command: str, words: str) -> str | None:
    from .prompts import fetch_prompt

    return await fetch_prompt(session, command, words)


def _list_models() -> Sequence[str]:
    from ..._adapters.models.providers import list_usable_models

    return list_usable_models(os.environ)


async def _list_sessions(folder: str | None) -> Sequence[RecordedSession]:
    from ..._adapters.journals.sessions import read_summary
    from .load_settings import load_settings
    from .session_store import list_infos, read_session_folder
    from .user_store import open_store

    store = open_store(load_settings(os.curdir).home)
    sessions: list[RecordedSession] = []
    for info in await list_infos(store, folder, _MAX_LISTED):
        summary = await read_summary(store, info)
        # A record may name its folder even without a summary.
        where = summary.folder or await read_session_folder(store, info.id)
        if summary.prompts and where:
            title = summary.name or summary.topic
            sessions.append(
                RecordedSession(id=info.id, cwd=where, title=title, written=info.modified)
            )
    return sessions


async def _delete_session(session: str) -> None:
    from .load_settings import load_settings
    from .session_store import delete_session
    from .user_store import open_store

    home = load_settings(os.curdir).home
    await delete_session(open_store(home), home, session)
