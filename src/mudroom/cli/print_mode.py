"""One prompt, one answer: the answer to stdout in the format asked for, everything else to stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import msgspec

from .._core.agents import Agent, Reason, Report
from .._core.budgets import Budget
from .._core.events import AnyEvent, TurnFailed
from .._engine.ledger import Tally, sentence
from .._engine.tree import clean
from ..config import Settings
from ..session import Session
from .interrupts import interrupts
from .screens import Screen, say, silence
from .stream_json import Stream, encode

TRANSIENT = 75
"""Exit code: the provider could not be reached or was overloaded; the same command may work later (EX_TEMPFAIL)."""


def session(settings: Settings, cwd: str) -> Session:
    """A session as the settings want it, not yet open. `cwd`: its folder. Raises UsageError for agents that cannot be used."""
    agents: list[Agent] = []
    if settings.agents:
        from .agents import inline

        agents = inline(settings.agents)
    return Session(
        agents=agents,
        root=settings.agent or None,
        agent_files=True,
        model=settings.model,
        child_model=settings.child_model,
        cwd=cwd,
        home=settings.home,
        budget=Budget(turns=settings.max_turns),
        child_turns=settings.child_turns,
        max_children=settings.max_children,
        sandbox=settings.sandbox,
        network=settings.allow_net,
        environ=os.environ,
    )


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


async def one_shot(prompt: str, settings: Settings, *, cwd: str, verbose: bool = False, quiet: bool = False) -> int:
    """Run one prompt in a session of its own; the exit code.

    Arguments:
        verbose: a line for every call, where there is no live tree. quiet: nothing on stderr but errors.
    """
    form, wanted = settings.output_format, None
    if settings.json_schema:
        from .agents import schema

        wanted = schema(settings.json_schema)
    async with session(settings, cwd) as opened:
        tally, verdict, output = Tally(), Verdict(), Output(opened.cancel if form == "stream-json" else bool)
        screen = Screen(settings.color, verbose=verbose, quiet=quiet, plain=form == "stream-json" and sys.stdout.isatty())
        screen.notices(opened.notices)
        agents = [agent.name for agent in opened.agents]
        lines = Stream(session=opened.id, cwd=opened.cwd, model=opened.model, tools=opened.tools, agents=agents)

        def tell(event: AnyEvent) -> None:
            for line in lines.feed(event):
                if form == "stream-json":
                    output.write(encode(line))

        if form == "stream-json":
            output.write(encode(lines.opening()))
        for watcher in (tally.apply, verdict.apply, screen.apply, *([] if form == "text" else [tell])):
            opened.watch(watcher)
        with interrupts(opened.cancel) as signals, screen:
            report = await (opened.run(prompt, outputs=wanted) if wanted else opened.run(prompt))
        ledger = tally.ledger
        output.write(
            _answer(report, values=wanted is not None) if form == "text" else encode(lines.result(report, msgspec.to_builtins(ledger)))
        )
        if trouble := why(report):
            say(trouble)
        if ledger.children and not quiet:
            say(sentence(ledger), prefix="")
        if output.trouble:
            say(f"stdout cannot be written: {output.trouble}")
        return verdict.code(report, signals) or int(bool(output.trouble))


def why(report: Report) -> str:
    """One line for the person: why a run did not reach its goal; "" if it did."""
    if report.ok:
        return ""
    if report.error:
        return clean(report.error)
    partial = "what it has so far is its answer" if report.text else "it gave no answer"
    return f"the run ended with {report.reason.value} after {report.turns} turns; {partial}"


def _answer(report: Report, *, values: bool) -> bytes:
    """What stdout carries: the text, or the values that were asked for as JSON."""
    text = msgspec.json.encode(report.outputs).decode() if values else report.text
    text = clean(text) if sys.stdout.isatty() else text
    return (text.rstrip("\n") + "\n").encode("utf-8", "replace") if text else b""
