"""Progress where there is no terminal to draw on: one plain line for each thing that happens to a child."""

from __future__ import annotations

from typing import TextIO

from ..._core.events import AnyEvent, ModelCallRetried, RunFinished, RunStarted, ToolCallStarted
from ...projections.run_tree import RunTree, RunView
from .text import choose_glyphs, sanitize_line, truncate
from .tree_lines import TreeStyle, describe_activity, describe_outcome, format_figures

MAX_COLUMNS = 160
"""Columns of the longest line."""


class PlainProgress:
    """Writes a line when a child starts, waits to ask its model again, or ends; with `verbose`, for every call of every run.

    Arguments:
        stream: as a rule stderr. tree: `on_event` feeds it, nothing else need.
    """

    def __init__(self, stream: TextIO, tree: RunTree, *, verbose: bool = False) -> None:
        self.tree = tree
        self._stream, self._verbose = stream, verbose
        self._signs = choose_glyphs(stream.encoding)

    def on_event(self, event: AnyEvent) -> None:
        """Take in an event, and write its line if it has one."""
        self.tree.apply(event)
        run = self.tree.runs.get(event.run)
        if run and isinstance(event, RunStarted | RunFinished | ModelCallRetried | ToolCallStarted):
            self._write(self._line(run, event))

    def _line(
        self, run: RunView, event: RunStarted | RunFinished | ModelCallRetried | ToolCallStarted
    ) -> str:
        name = f"[{sanitize_line(run.agent)}#{run.run_id}]"
        if isinstance(event, RunStarted):
            label = f" ({sanitize_line(run.description)})" if run.description else ""
            return f"> task{label}: {sanitize_line(run.prompt)}" if run.depth else ""
        if isinstance(event, RunFinished):
            return (
                f"{name} {describe_outcome(run)} ({self._signs.dot.join(format_figures(run, event.at))})"
                if run.depth
                else ""
            )
        if isinstance(event, ModelCallRetried) or self._verbose:
            return f"{name} {describe_activity(run, TreeStyle(now=event.at))}"
        return ""

    def _write(self, line: str) -> None:
        if not line:
            return
        try:
            self._stream.write(truncate(line, MAX_COLUMNS, self._signs.more) + "\n")
            self._stream.flush()
        except OSError:  # whoever listened is gone; the run goes on
            pass
