"""Progress where there is no terminal to draw on: one plain line for each thing that happens to a child."""

from __future__ import annotations

from typing import TextIO

from ..._core.events import AnyEvent, CallStarted, Retried, RunFinished, RunStarted
from ...projections.run_tree import RunView, Tree
from .text import cut, glyphs, one_line
from .tree_lines import Look, doing, figures, outcome

WIDE = 160
"""Columns of the longest line."""


class PlainProgress:
    """Writes a line when a child starts, waits to ask its model again, or ends; with `verbose`, for every call of every run.

    Arguments:
        stream: as a rule stderr. tree: `on_event` feeds it, nothing else need.
    """

    def __init__(self, stream: TextIO, tree: Tree, *, verbose: bool = False) -> None:
        self.tree = tree
        self._stream, self._verbose = stream, verbose
        self._signs = glyphs(stream.encoding)

    def on_event(self, event: AnyEvent) -> None:
        """Take in an event, and write its line if it has one."""
        self.tree.apply(event)
        run = self.tree.runs.get(event.run)
        if run and isinstance(event, RunStarted | RunFinished | Retried | CallStarted):
            self._write(self._line(run, event))

    def _line(self, run: RunView, event: RunStarted | RunFinished | Retried | CallStarted) -> str:
        name = f"[{one_line(run.agent)}#{run.run_id}]"
        if isinstance(event, RunStarted):
            label = f" ({one_line(run.description)})" if run.description else ""
            return f"> task{label}: {one_line(run.prompt)}" if run.depth else ""
        if isinstance(event, RunFinished):
            return (
                f"{name} {outcome(run)} ({self._signs.dot.join(figures(run, event.at))})"
                if run.depth
                else ""
            )
        if isinstance(event, Retried) or self._verbose:
            return f"{name} {doing(run, Look(now=event.at))}"
        return ""

    def _write(self, line: str) -> None:
        if not line:
            return
        try:
            self._stream.write(cut(line, WIDE, self._signs.more) + "\n")
            self._stream.flush()
        except OSError:  # whoever listened is gone; the run goes on
            pass
