"""One prompt, one answer: the answer to stdout in the format asked for, everything else to stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from shutil import get_terminal_size
from typing import Any

import msgspec

from ..._core.agents import Reason, Report
from ..._core.events import AnyEvent, Stored, TurnFailed
from ...config import Settings
from ...errors import UsageError
from ...pricing import cost
from ...projections.ledger import Tally, sentence
from ...session import Session
from ..output.answer_stream import Spoken
from ..output.markdown import rendered
from ..output.progress import Screen, colored, say, silence
from ..output.report import answered, why
from ..output.sandbox_notice import walls
from ..output.signals import interrupts
from ..output.stream_json import Stream, encode
from .load_permissions import permitted
from .open_session import session
from .select_session import begun, left, tidy
from .session_start import NEW, Start

TRANSIENT = 75
"""Exit code: the provider could not be reached or was overloaded; the same command may work later (EX_TEMPFAIL)."""


class Output:
    """stdout, for as long as it takes anything.

    Arguments:
        gone: called once, when it takes no more.
    """

    def __init__(self, gone: Callable[[], object] = bool) -> None:
        self._gone, self._open, self.trouble = gone, True, ""

    def write(self, data: bytes) -> None:
        """Write and flush. A closed pipe is the reader's right; anything else that goes wrong is kept in `trouble`."""
        if not self._open:
            return
        try:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        except OSError as error:
            self._open, self.trouble = (
                False,
                "" if isinstance(error, BrokenPipeError) else str(error.strerror),
            )
            silence()
            self._gone()


class Verdict:
    """Whether the root run's last failure may pass by itself; a fold of events."""

    def __init__(self) -> None:
        self.transient = False

    def apply(self, event: AnyEvent) -> None:
        """Take in the next event."""
        if isinstance(event, TurnFailed) and "." not in event.run:
            self.transient = event.transient

    def code(self, report: Report, signals: list[int]) -> int:
        """The exit code. `signals`: those that came while the run was on."""
        if signals:
            return 128 + signals[0]
        if report.reason is Reason.ERROR and self.transient:
            return TRANSIENT
        return 0 if report.ok else 1


class Show:
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
        self._tally, self._verdict = Tally(), Verdict()
        self._output = Output(opened.cancel if self._form == "stream-json" else bool)
        plain = settings.screen == "plain" or (self._form == "stream-json" and sys.stdout.isatty())
        self.screen = Screen(settings.color, verbose=verbose, quiet=quiet, plain=plain)
        self._values, self._spoken = values, None
        if self._form == "text" and not values and sys.stdout.isatty():
            self._spoken = Spoken(self._put, lambda: self._put("(the answer was cut off here)"))
            self._color = colored(sys.stdout, settings.color)
            self.screen.speaks(lambda: self._spoken.pending if self._spoken else "")
        agents = [agent.name for agent in opened.agents]
        self._lines = Stream(
            session=opened.id,
            cwd=opened.cwd,
            model=opened.model,
            tools=opened.tools,
            agents=agents,
            cost=cost,
            sandbox=opened.sandbox.tier,
            mode=permitted(settings, opened.cwd)[0].mode,
        )
        first = (
            walls(opened, network=settings.allow_net)
            if verbose or opened.sandbox.tier != "full"
            else ""
        )
        self.screen.notices(filter(None, (first, *opened.notices)))
        if self._form == "stream-json":
            self._output.write(encode(self._lines.opening()))
        opened.watch(self._apply)

    def recall(self, events: Iterable[Stored]) -> None:
        """Count in what happened before, without a line for each."""
        for event in events:
            self._tally.apply(event)
            self.screen.recall(event)
            if self._form != "text":
                list(self._lines.feed(event))

    def conclude(self, report: Report, signals: list[int]) -> int:
        """Print the report; the exit code. `signals`: those that came meanwhile."""
        ledger, output = self._tally.ledger, self._output
        if self._form != "text":
            output.write(encode(self._lines.result(report, msgspec.to_builtins(ledger))))
        elif not self._spoken:
            output.write(answered(report, values=self._values))
        if trouble := why(report):
            say(trouble)
        if ledger.children and not self._quiet:
            say(sentence(ledger), prefix="")
        if output.trouble:
            say(f"stdout cannot be written: {output.trouble}")
        return self._verdict.code(report, signals) or int(bool(output.trouble))

    def _apply(self, event: AnyEvent) -> None:
        for fold in (self._tally, self._verdict, self.screen, *filter(None, [self._spoken])):
            fold.apply(event)
        if self._form != "text":
            for line in self._lines.feed(event):
                if self._form == "stream-json":
                    self._output.write(encode(line))

    def _put(self, markdown: str) -> None:
        """Write a block of the answer to the terminal."""
        text = rendered(markdown, columns=get_terminal_size().columns, color=self._color)
        self.screen.say(lambda: self._output.write(text.encode("utf-8", "replace")))


async def one_shot(
    prompt: str | None,
    settings: Settings,
    *,
    cwd: str,
    start: Start = NEW,
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
        from .agents import schema

        wanted = schema(settings.json_schema)
    async with session(settings, cwd, **start.opening) as opened:
        begun(opened, settings.home, start)
        if tidied := tidy(settings):
            say(tidied)
        show = Show(opened, settings, verbose=verbose, quiet=quiet, values=wanted is not None)
        show.recall(left(opened, settings.home))
        if opened.unfinished and not quiet:
            say("going on with what was interrupted")
        with interrupts(opened.cancel, last=True) as signals, show.screen:
            report = await opened.finish()
            if prompt is not None and not signals:
                report = await (
                    opened.run(prompt, outputs=wanted) if wanted else opened.run(prompt)
                )
        if report is None:
            raise UsageError("nothing was interrupted in this session", where=opened.id)
        return show.conclude(report, signals)
