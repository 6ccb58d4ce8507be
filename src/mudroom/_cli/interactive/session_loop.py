"""The loop over a prompt's sessions: opens a session, runs its conversation, opens the next."""

from __future__ import annotations

from typing import Any, Protocol

from msgspec.structs import replace

from ..._session.config import Settings
from ..._session.session import Session
from ..actions.load_permissions import load_permissions
from ..actions.open_session import create_session, name_session
from ..actions.preload import preload_context_windows
from ..actions.programs.load_programs import list_server_names, load_programs
from ..actions.session_start import SessionStart, StartOptions
from ..actions.session_store import delete_expired_sessions
from ..output.notices.log import show_log
from ..output.notices.start import describe_sandbox, select_new_notices
from .conversation import Conversation, NextStep
from .questions.approvals import ApprovalPrompt
from .questions.trust_question import TrustAnswer, ask_for_trust, find_untrusted_files
from .recap import choose_session, print_exit_line, print_recap, read_tree
from .slash_commands.registry import COMMANDS
from .ui import UI


class SessionUI(UI, Protocol):
    """A UI that shows one conversation after another."""

    def attach(self, conversation: Conversation) -> None: ...


async def run_sessions(ui: SessionUI, options: StartOptions, *, first: str = "") -> int:
    """Run one session after another until the user leaves; return the exit code.

    Arguments:
        options: with the session to open first.
        first: prompt from the command line, run before any input is read.
    """
    start = options.start
    preload_context_windows(options.settings.model)
    settings = options.settings
    if start.asks:
        start = replace(start, resume=await choose_session(ui, settings.home, options.cwd))
        if not start.resume:
            return ui.exit_code
    answer, shown = await _decide_trust(ui, settings, options.cwd, start.resume)
    settings = answer.settings
    approver = ApprovalPrompt(ui, settings.home, answer.trusted_prompts)
    fixed: dict[str, Any] = {"programs": answer.programs, "approver": approver, "prices": True}
    step = NextStep()
    servers = list_server_names(answer.programs)
    previous = ""
    while step.exit_code is None:
        loaded = load_permissions(settings, options.cwd, can_ask=True, servers=servers)
        chosen = _list_choices(step)
        session = create_session(settings, options.cwd, loaded, start, **fixed, **chosen)
        conversation = Conversation(session, ui, settings, COMMANDS)
        conversation.status.mode = loaded.permissions.mode
        async with session, conversation.resources:
            approver.start_session(
                loaded.permissions,
                session.cwd,
                conversation.interrupt,
                tree=conversation.tree,
                is_same=bool(previous) and start.resume == previous,
                tier=session.sandbox.tier,
            )
            conversation.approvals = approver
            await name_session(session, settings.home, start)
            conversation.status.model = session.model
            if start.resume and start.resume not in (previous, shown):
                print_recap(ui.scrollback, conversation.tree, session.id)
            if not previous:
                await _print_notices(conversation, session, options.quiet)
            ui.attach(conversation)
            with show_log(lambda text, to=conversation: to.print_text(text, "yellow")):
                step = await conversation.run_until_done(first)
            session.end_reason = _choose_end_reason(step)
            if step.exit_code is not None and not options.quiet:
                await print_exit_line(conversation)
        previous = session.id
        shown = ""
        first = ""
        start = _choose_start(step, start, previous)
        settings = _keep_choices(settings, step)
    return step.exit_code or ui.exit_code


def _choose_start(step: NextStep, start: SessionStart, previous: str) -> SessionStart:
    """Return how the next session starts. A session without a prompt is opened again as new.

    Arguments:
        start: how the last session started. previous: its id.
    """
    if step.is_cleared:
        return SessionStart(source="clear")
    if step.resume:
        return SessionStart(resume=step.resume, source=start.source)
    return SessionStart(id=previous, name=start.name, source=start.source)


def _choose_end_reason(step: NextStep) -> str:
    """Return why a session ended, in the words that its hooks know."""
    if step.exit_code is not None:
        return "prompt_input_exit"
    return "clear" if step.is_cleared else "resume"


def _list_choices(step: NextStep) -> dict[str, Any]:
    """Return the session options that a slash command chose for the next session."""
    options: dict[str, Any] = {"model": step.model} if step.model else {}
    if step.output_style:
        options |= {"output_style": step.output_style, "output_style_origin": ""}
    return options


def _keep_choices(settings: Settings, step: NextStep) -> Settings:
    """Return the settings of all later sessions of the prompt."""
    settings = replace(settings, permission_mode=step.mode or settings.permission_mode)
    if not step.output_style:
        return settings
    origins = settings.origins | {"output_style": "/output-style"}
    return replace(settings, output_style=step.output_style, origins=origins)


async def _decide_trust(
    ui: SessionUI, settings: Settings, cwd: str, resumed: str
) -> tuple[TrustAnswer, str]:
    """Ask for trust if the folder needs it, below the resumed conversation.

    Returns the answer, and the id of the session that is shown already or "".

    Arguments:
        resumed: id of the session to resume, "" for none.
    """
    names = find_untrusted_files(settings, cwd)
    # Read once for all sessions of the prompt: a file that changes after the question adds none.
    programs = load_programs(settings, cwd)
    if not names and not (programs and programs.untrusted):
        return TrustAnswer(settings, programs), ""
    if resumed:
        print_recap(ui.scrollback, await read_tree(settings.home, resumed), resumed)
    return await ask_for_trust(ui, settings, cwd, names, programs), resumed


async def _print_notices(conversation: Conversation, session: Session, quiet: bool) -> None:
    """Print the notices of the first session, and how many expired sessions were deleted."""
    settings = conversation.settings
    if not quiet:
        of_machine = describe_sandbox(session, network=settings.allow_net)
        new = select_new_notices(settings.home, session.cwd, session.notices)
        for notice in (of_machine, *new):
            if notice:
                conversation.print_text(notice, "dim")
    deleted = await delete_expired_sessions(settings)
    if deleted:
        conversation.print_text(deleted, "dim")
