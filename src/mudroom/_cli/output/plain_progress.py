"""Progress without a drawn screen: one plain line per event of a child run."""

from __future__ import annotations

from contextlib import suppress
from typing import TextIO

from ..._core.events import (
    AnyEvent,
    Delta,
    ModelCallRetried,
    RunFinished,
    RunStarted,
    ToolCallStarted,
    WorkMerged,
)
from ..._projections.run_tree import RunTree
from ..._projections.run_view import RunView, describe_merge
from .child_names import make_child_name
from .progress import Progress
from .text import choose_glyphs, truncate
from .tree_lines import (
    TreeStyle,
    describe_activity,
    describe_outcome,
    describe_task,
    format_figures,
)

# Maximum width of a line.
MAX_COLUMNS = 160

# Maximum width of a child's name.
MAX_NAME_COLUMNS = 60


class PlainProgress(Progress):
    """Progress as lines: a child run starts, retries a model call, ends, or has its work merged.

    Verbose mode adds every run's tool calls, their progress, and web searches.
    """

    def __init__(self, stream: TextIO, tree: RunTree, *, verbose: bool = False) -> None:
        super().__init__(tree)
        self._stream = stream
        self._verbose = verbose
        self._glyphs = choose_glyphs(stream.encoding)

    def on_event(self, event: AnyEvent) -> None:
        self.tree.apply(event)
        self.print_line(event)

    def print_line(self, event: AnyEvent) -> None:
        run = self.tree.runs.get(event.run)
        line = self._format_line(run, event) if run else ""
        if line:
            self._write(line)

    def _format_line(self, run: RunView, event: AnyEvent) -> str:
        name = self._name_run(run)
        match event:
            case RunStarted() if run.depth:
                return describe_task(run)
            case RunFinished() if run.depth:
                figures = self._glyphs.dot.join(format_figures(run, event.at))
                return f"{name}: {describe_outcome(run)} ({figures})"
            case WorkMerged() if child := self.tree.runs.get(event.child):
                return f"{self._name_run(child)}: {describe_merge(child)}"
            case ModelCallRetried() | Delta(kind="waiting"):
                return f"{name}: {describe_activity(run, TreeStyle(now=event.at))}"
            case Delta(kind="search_start" | "search_end" | "progress") | ToolCallStarted() if (
                self._verbose
            ):
                return f"{name}: {describe_activity(run, TreeStyle(now=event.at))}"
            case _:
                return ""

    def _name_run(self, run: RunView) -> str:
        if run.name or not run.parent:
            return run.short_label
        return make_child_name(self.tree, run.run_id, MAX_NAME_COLUMNS, self._glyphs)

    def _write(self, line: str) -> None:
        with suppress(OSError):  # The stream was closed, but the run must continue.
            self._stream.write(truncate(line, MAX_COLUMNS, self._glyphs.more) + "\n")
            self._stream.flush()
