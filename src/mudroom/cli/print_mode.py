"""One prompt, one answer: the answer to stdout in the format asked for, everything else to stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from shutil import get_terminal_size
from typing import Any

import msgspec

from .._core.agents import Agent, Reason, Report
from .._core.budgets import Budget
from .._core.events import AnyEvent, Stored, TurnFailed
from .._engine.ledger import Tally, sentence
from .._engine.tree import clean
from ..config import Settings
from ..errors import UsageError
from ..prices import cost
from ..session import Session
from .going_on import begun, left, tidy
from .interrupts import interrupts
from .markdown import rendered
from .permissions import permitted, trusts
from .screens import Screen, colored, say, silence
from .spoken import Spoken
from .start import NEW, Start
from .stream_json import Stream, encode
from .walls import walls

TRANSIENT = 75
"""Exit code: the provider could not be reached or was overloaded; the same command may work later (EX_TEMPFAIL)."""


def session(settings: Settings, cwd: str, **more: Any) -> Session:
    """A session as the settings want it, not yet open. Raises UsageError for agents that cannot be used.

    Arguments:
        cwd: its folder. more: arguments of Session that take the place of what the settings say.
    """
    agents: list[Agent] = []
    if settings.agents:
        from .agents import inline

        agents = inline(settings.agents)
    held, notes = permitted(settings, cwd, attended="approver" in more)
    wish: dict[str, Any] = {
        "permissions": held,
        "trusted": trusts(settings, cwd),
        "agents": agents,
        "root": settings.agent or None,
        "agent_files": True,
        "model": settings.model,
        "child_model": settings.child_model,
        "cwd": cwd,
        "home": settings.home,
        "budget": _budget(settings),
        "prices": settings.output_format != "text",
        "child_turns": settings.child_turns,
        "max_children": settings.max_children,
        "sandbox": settings.sandbox,
        "network": settings.allow_net,
        "environ": os.environ,
    }
    made = Session(**wish | more)
    made.notices.extend(notes)
    return made


def _budget(settings: Settings) -> Budget:
    seconds = settings.max_minutes and settings.max_minutes * 60
    return Budget(turns=settings.max_turns, seconds=seconds, total_tokens=settings.max_tokens, usd=settings.max_budget_usd)


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
            self._open, self.trouble = False, "" if isinstance(error, BrokenPipeError) else str(error.strerror)
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

    def __init__(self, opened: Session, settings: Settings, *, verbose: bool, quiet: bool, values: bool = False) -> None:
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
            session=opened.id, cwd=opened.cwd, model=opened.model, tools=opened.tools, agents=agents, cost=cost,
            sandbox=opened.sandbox.tier, mode=permitted(settings, opened.cwd)[0].mode,
        )  # fmt: skip
        first = walls(opened, network=settings.allow_net) if verbose or opened.sandbox.tier != "full" else ""
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
    prompt: str | None, settings: Settings, *, cwd: str, start: Start = NEW, verbose: bool = False, quiet: bool = False
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
                report = await (opened.run(prompt, outputs=wanted) if wanted else opened.run(prompt))
        if report is None:
            raise UsageError("nothing was interrupted in this session", where=opened.id)
        return show.conclude(report, signals)


def why(report: Report) -> str:
    """One line for the person: why a run did not reach its goal; "" if it did."""
    if report.ok:
        return ""
    if report.error:
        return clean(report.error)
    partial = "what it has so far is its answer" if report.text else "it gave no answer"
    return f"the run ended with {report.reason.value} after {report.turns} turns; {partial}"


def answered(report: Report, *, values: bool = False) -> bytes:
    """What stdout carries: the text, or the values that were asked for as JSON."""
    text = msgspec.json.encode(report.outputs).decode() if values else report.text
    text = clean(text) if sys.stdout.isatty() else text
    return (text.rstrip("\n") + "\n").encode("utf-8", "replace") if text else b""
