"""One prompt, one answer: the answer to stdout in the format asked for, everything else to stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from shutil import get_terminal_size
from typing import Any

import msgspec

from ..._core.agents import Reason, Report
from ..._core.events import AnyEvent, StoredEvent, TurnFailed
from ...config import Settings
from ...errors import UsageError
from ...pricing import calculate_cost
from ...projections.ledger import LedgerBuilder, describe_ledger
from ...session import Session
from ..output.answer_stream import AnswerStream
from ..output.markdown import render_markdown
from ..output.progress import ProgressScreen, discard_stdout, print_notice, should_color
from ..output.report import encode_answer, explain_failure
from ..output.sandbox_notice import describe_sandbox
from ..output.signals import handle_signals
from ..output.stream_json import StreamJson, encode_line
from .load_permissions import load_permissions
from .open_session import create_session
from .select_session import delete_expired_sessions, name_session, unfinished_events
from .session_start import NEW_SESSION, SessionStart

EXIT_TRY_LATER = 75
"""Exit code: the provider could not be reached or was overloaded; the same command may work later (EX_TEMPFAIL)."""


class StandardOutput:
    """stdout, for as long as it takes anything.

    Arguments:
        gone: called once, when it takes no more.
    """

    def __init__(self, on_closed: Callable[[], object] = bool) -> None:
        self._gone, self._open, self.error = on_closed, True, ""

    def write(self, data: bytes) -> None:
        """Write and flush. A closed pipe is the reader's right; anything else that goes wrong is kept in `trouble`."""
        if not self._open:
            return
        try:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        except OSError as error:
            self._open, self.error = (
                False,
                "" if isinstance(error, BrokenPipeError) else str(error.strerror),
            )
            discard_stdout()
            self._gone()


class ExitCodeRule:
    """Whether the root run's last failure may pass by itself; a fold of events."""

    def __init__(self) -> None:
        self.transient = False

    def apply(self, event: AnyEvent) -> None:
        """Take in the next event."""
        if isinstance(event, TurnFailed) and "." not in event.run:
            self.transient = event.transient

    def exit_code(self, report: Report, signals: list[int]) -> int:
        """The exit code. `signals`: those that came while the run was on."""
        if signals:
            return 128 + signals[0]
        if report.reason is Reason.ERROR and self.transient:
            return EXIT_TRY_LATER
        return 0 if report.ok else 1


class RunReporter:
    """All that is seen of one run: its events and its report, on stdout and stderr.

    Arguments:
        opened: the session. verbose: a line for every call, where there is no live tree. quiet: nothing on stderr but errors.
        values: the answer is its outputs, as JSON.

    An answer in text to a terminal is rendered there as it streams; anything else that takes stdout gets it as it is, at the end.
    """

    def __init__(
        self,
        opened: Session,
        settings: Settings,
        *,
        verbose: bool,
        quiet: bool,
        values: bool = False,
    ) -> None:
        self._form, self._quiet = settings.output_format, quiet
        self._tally, self._verdict = LedgerBuilder(), ExitCodeRule()
        self._output = StandardOutput(opened.cancel if self._form == "stream-json" else bool)
        plain = settings.screen == "plain" or (self._form == "stream-json" and sys.stdout.isatty())
        self.screen = ProgressScreen(settings.color, verbose=verbose, quiet=quiet, plain=plain)
        self._values, self._spoken = values, None
        if self._form == "text" and not values and sys.stdout.isatty():
            self._spoken = AnswerStream(
                self._put, lambda: self._put("(the answer was cut off here)")
            )
            self._color = should_color(sys.stdout, settings.color)
            self.screen.show_pending(lambda: self._spoken.pending if self._spoken else "")
        agents = [agent.name for agent in opened.agents]
        self._lines = StreamJson(
            session=opened.id,
            cwd=opened.cwd,
            model=opened.model,
            tools=opened.tools,
            agents=agents,
            cost=calculate_cost,
            sandbox=opened.sandbox.tier,
            mode=load_permissions(settings, opened.cwd)[0].mode,
        )
        first = (
            describe_sandbox(opened, network=settings.allow_net)
            if verbose or opened.sandbox.tier != "full"
            else ""
        )
        self.screen.print_notices(filter(None, (first, *opened.notices)))
        if self._form == "stream-json":
            self._output.write(encode_line(self._lines.init_line()))
        opened.watch(self._apply)

    def add_past_events(self, events: Iterable[StoredEvent]) -> None:
        """Count in what happened before, without a line for each."""
        for event in events:
            self._tally.apply(event)
            self.screen.apply_past(event)
            if self._form != "text":
                list(self._lines.event_lines(event))

    def print_report(self, report: Report, signals: list[int]) -> int:
        """Print the report; the exit code. `signals`: those that came meanwhile."""
        ledger, output = self._tally.ledger, self._output
        if self._form != "text":
            output.write(encode_line(self._lines.result_line(report, msgspec.to_builtins(ledger))))
        elif not self._spoken:
            output.write(encode_answer(report, as_json=self._values))
        if trouble := explain_failure(report):
            print_notice(trouble)
        if ledger.children and not self._quiet:
            print_notice(describe_ledger(ledger), prefix="")
        if output.error:
            print_notice(f"stdout cannot be written: {output.error}")
        return self._verdict.exit_code(report, signals) or int(bool(output.error))

    def _apply(self, event: AnyEvent) -> None:
        for fold in (self._tally, self._verdict, self.screen, *filter(None, [self._spoken])):
            fold.apply(event)
        if self._form != "text":
            for line in self._lines.event_lines(event):
                if self._form == "stream-json":
                    self._output.write(encode_line(line))

    def _put(self, markdown: str) -> None:
        """Write a block of the answer to the terminal."""
        text = render_markdown(markdown, columns=get_terminal_size().columns, color=self._color)
        self.screen.print_answer(lambda: self._output.write(text.encode("utf-8", "replace")))


async def run_one_shot(
    prompt: str | None,
    settings: Settings,
    *,
    cwd: str,
    start: SessionStart = NEW_SESSION,
    verbose: bool = False,
    quiet: bool = False,
) -> int:
    """Run one prompt in a session of its own, or in the one that `start` names; the exit code.

    Arguments:
        prompt: None only finishes what was interrupted there.
        verbose: a line for every call, where there is no live tree. quiet: nothing on stderr but errors.
    """
    wanted: Any = None
    if settings.json_schema:
        from .agents import load_json_schema

        wanted = load_json_schema(settings.json_schema)
    async with create_session(settings, cwd, **start.session_arguments) as opened:
        name_session(opened, settings.home, start)
        if tidied := delete_expired_sessions(settings):
            print_notice(tidied)
        show = RunReporter(
            opened, settings, verbose=verbose, quiet=quiet, values=wanted is not None
        )
        show.add_past_events(unfinished_events(opened, settings.home))
        if opened.unfinished_runs and not quiet:
            print_notice("going on with what was interrupted")
        with handle_signals(opened.cancel, exits_after=True) as signals, show.screen:
            report = await opened.resume_unfinished()
            if prompt is not None and not signals:
                report = await (
                    opened.run(prompt, outputs=wanted) if wanted else opened.run(prompt)
                )
        if report is None:
            raise UsageError("nothing was interrupted in this session", where=opened.id)
        return show.print_report(report, signals)
