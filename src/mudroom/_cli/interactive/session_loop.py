"""The loop over a prompt's sessions: opens one, runs its conversation, opens the next."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace

from ..._adapters.models.pricing import get_context_window
from ..._adapters.models.providers import choose_default_model
from ..._core.ports import Approver
from ..._projections.run_view import RunView
from ..._projections.safe_text import sanitize
from ..._session.config import Settings
from ..._session.session import Session
from ...driving import SessionStart as DriverStart
from ..actions.load_permissions import load_permissions
from ..actions.open_session import create_session, name_session
from ..actions.programs.load_programs import list_server_names, load_programs
from ..actions.session_start import SessionStart, StartOptions
from ..actions.session_store import delete_expired_sessions
from ..actions.user_store import open_store
from ..output.notices.log import show_log
from ..output.notices.start import describe_sandbox, select_new_notices
from ..output.text import format_seconds, format_tokens, format_total_costs, truncate
from .conversation import Conversation, NextStep, Plan
from .questions.approvals import ApprovalPrompt
from .questions.trust_question import TrustAnswer, ask_for_trust, find_untrusted_files
from .recap import choose_session, read_recap
from .slash_commands.registry import COMMANDS
from .ui import UI

if TYPE_CHECKING:
    from ..._adapters.integrations.usable_programs import UsablePrograms


# Characters of unfinished work shown when the user leaves.
MAX_OPEN_TITLES = 300


class SessionUI(UI, Protocol):
    def attach(self, conversation: Conversation) -> None: ...


async def run_sessions(ui: SessionUI, options: StartOptions, *, first: str = "") -> int:
    """Run one session after another until the user leaves; return the exit code.

    `first` is a prompt from the command line.
    """
    start = options.start
    preload_context_windows(options.settings.model)
    settings = options.settings
    if start.asks:
        start = replace(start, resume=await choose_session(ui, settings.home, options.cwd))
        if not start.resume:
            return ui.exit_code
    answer, shown = await _decide_trust(ui, settings, options.cwd, start.resume)
    plan = Plan(answer.settings)
    step = NextStep()
    previous = ""
    while step.exit_code is None:
        approvals = ApprovalPrompt(ui, answer.trusted_prompts)
        maker = _SessionMaker(options.cwd, start, answer.programs, approvals.questions)
        conversation = Conversation(
            maker.make,
            plan,
            ui,
            COMMANDS,
            approvals=approvals,
            on_open=maker.begin,
            resumes=bool(start.resume),
        )
        async with conversation:
            if start.resume and start.resume != shown:
                conversation.recap.print(ui.scrollback, conversation.session.id)
            if not previous:
                await _print_notices(conversation, options.quiet)
            ui.attach(conversation)
            with show_log(partial(conversation.print_text, style="yellow")):
                step = await conversation.run_until_done(first)
            conversation.session.end_reason = _choose_end_reason(step)
            if step.exit_code is not None and not options.quiet:
                await print_exit_line(conversation)
        previous = conversation.session.id
        shown = ""
        first = ""
        start = SessionStart(source="clear" if step.is_cleared else start.source)
        start = replace(start, resume=step.resume)
        plan = _keep_choices(conversation.driver.plan)
    return step.exit_code or ui.exit_code


class _SessionMaker:
    def __init__(
        self,
        cwd: str,
        start: SessionStart,
        programs: UsablePrograms | None,
        approver: Approver,
    ) -> None:
        self._cwd = cwd
        self._start = start
        self._programs = programs
        self._approver = approver
        self._must_name = True

    def make(self, plan: Plan, again: DriverStart) -> Session:
        start = self._start
        self._must_name = not again.is_recorded or again.id is None
        if again.id is not None:
            start = SessionStart(source=start.source, name=start.name, **again.options)
        settings = plan.settings
        servers = list_server_names(self._programs)
        loaded = load_permissions(settings, self._cwd, can_ask=True, servers=servers)
        options: dict[str, Any] = {"approver": self._approver, "prices": True}
        if plan.model is not None:
            options["model"] = plan.model
        if plan.output_style is not None:
            origins = {"child_model": settings.get_persistent_origin("child_model")}
            options |= {"output_style": plan.output_style, "origins": origins}
        programs = self._programs
        session = create_session(settings, self._cwd, loaded, start, programs=programs, **options)
        session.allows_offline = True
        return session

    async def begin(self, conversation: Conversation) -> None:
        session = conversation.session
        if self._must_name:
            await name_session(session, conversation.settings.home, self._start)
        conversation.status.mode = session.permissions.mode
        conversation.status.model = session.model


def _choose_end_reason(step: NextStep) -> str:
    """Choose the reason why a session ended, in the words its hooks know."""
    if step.exit_code is not None:
        return "prompt_input_exit"
    return "clear" if step.is_cleared else "resume"


def _keep_choices(plan: Plan) -> Plan:
    """Keep the mode and the output style in the next conversation's plan."""
    if plan.output_style is None:
        return Plan(plan.settings)
    origins = plan.settings.origins | {"output_style": "/output-style"}
    return Plan(replace(plan.settings, output_style=plan.output_style, origins=origins))


async def _decide_trust(
    ui: SessionUI, settings: Settings, cwd: str, resumed: str
) -> tuple[TrustAnswer, str]:
    """Ask for trust if the folder needs it, below the resumed conversation.

    Returns the answer, and the id of the session already shown, or "".
    """
    names = find_untrusted_files(settings, cwd)
    # Read once for all the prompt's sessions: a file that changes after the question adds none.
    programs = load_programs(settings, cwd)
    if not names and not (programs and programs.untrusted):
        return TrustAnswer(settings, programs), ""
    if resumed:
        (await read_recap(settings.home, resumed)).print(ui.scrollback, resumed)
    return await ask_for_trust(ui, settings, cwd, names, programs), resumed


async def _print_notices(conversation: Conversation, quiet: bool) -> None:
    settings, session = conversation.settings, conversation.session
    if not quiet:
        of_machine = describe_sandbox(session, network=settings.allow_net)
        new = select_new_notices(settings.home, session.cwd, session.notices)
        for text in (of_machine, *(notice.text for notice in new)):
            if text:
                conversation.print_text(text, "dim")
    deleted = await delete_expired_sessions(settings)
    if deleted:
        conversation.print_text(deleted, "dim")


async def print_exit_line(conversation: Conversation) -> None:
    """Print how to resume the session, and its costs; nothing for a session without prompts."""
    tree = conversation.tree
    if not tree.roots:
        return  # Nothing is stored.
    header = await open_store(conversation.settings.home).read_header(conversation.session.id)
    figures = list_amounts(tree.roots)
    if work := conversation.background_work:
        titles = "; ".join(f"{each.id} {each.title}" for each in work)
        text = f"Open: {truncate(titles, MAX_OPEN_TITLES)}. Children continue when you resume the "
        conversation.print_text(f"{text}session; commands are stopped.", "yellow")
    conversation.print_text(f"This session used {', '.join(figures)}.", "dim")
    name = sanitize(header.name)
    target = shlex.quote(name) if name else conversation.session.id[:8]
    # On a separate line, for copying.
    conversation.ui.scrollback.write_lines([(f"mudroom --resume {target}", "bold")])


def list_amounts(roots: Sequence[RunView]) -> list[str]:
    spent = [root for root in roots if root.total_usage.total_tokens]
    seconds = sum(root.count_seconds(root.last_event_at) for root in roots)
    figures = [f"{format_tokens(sum(root.total_usage.total_tokens for root in spent))} tokens"]
    reports = [root.report for root in spent]
    usd = sum(report.usd or 0.0 for report in reports if report)
    is_least = any(
        report is None or report.usd is None or report.has_unknown_usage for report in reports
    )
    costs = format_total_costs(usd, is_least=is_least)
    return [*figures, *filter(None, [costs]), format_seconds(seconds)]


def preload_context_windows(model: str) -> None:
    """Load context windows in the background, if a session will show its model's."""
    if model == "auto":
        model = choose_default_model(os.environ) or "offline"
    if not model.startswith(("offline", "replay:")):
        # A daemon, so that a command that exits at once does not wait for the import.
        Thread(target=get_context_window, args=(model,), daemon=True).start()
