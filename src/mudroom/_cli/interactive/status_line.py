"""Status line below the prompt: model, sandbox, mode, tokens, cost, context and key hints."""

from __future__ import annotations

from collections.abc import Callable

from ..._core.events import AnyEvent, RunFinished, RunStarted, SessionOpened, TurnFinished
from ..._core.runs import is_child_id
from ..._engine.context_policy import find_no_window
from ..._projections.context_size import ContextReceipts, ContextShares
from ..output.text import Glyphs, fit_with_figures, format_tokens, format_total_costs, truncate


class StatusLine:
    """Folds events into the figures of the status line.

    A context window of 0 tokens is unknown. With unknown costs, `usd` is a minimum.
    """

    def __init__(self, find_window: Callable[[str], int] = find_no_window) -> None:
        self.model = ""
        self.sandbox = ""
        self.mode = ""
        self.context_tokens = 0
        self.total_tokens = 0
        self.usd = 0.0
        self.has_unknown_costs = False
        self.receipts = ContextReceipts()
        self.shares = ContextShares()
        self._find_window = find_window

    def rewind(self, run_id: str) -> None:
        """Return to the state before a root run; the costs stay."""
        self.receipts.rewind(run_id)
        self.shares.rewind(run_id)

    @property
    def context_window(self) -> int:
        return self._find_window(self.model)

    def apply(self, event: AnyEvent) -> None:
        self.receipts.apply(event)
        self.shares.apply(event)
        if isinstance(event, SessionOpened):
            self.sandbox = event.sandbox
        elif isinstance(event, RunStarted) and not event.brief.depth:
            self.model = event.brief.model
        elif isinstance(event, RunFinished) and not is_child_id(event.run):
            report = event.report
            self.usd += report.usd or 0.0
            self.has_unknown_costs |= report.usd is None or report.has_unknown_usage
        elif isinstance(event, TurnFinished):
            self.total_tokens += event.message.usage.total_tokens
            if not is_child_id(event.run):
                self.context_tokens = event.message.usage.total_tokens

    def format_line(self, columns: int, glyphs: Glyphs, *, hint: str = "") -> tuple[str, str]:
        """Return (model, other figures), together at most `columns` wide.

        The hint, which names the keys available now, stays when nothing else fits.
        """
        figures = [
            f"sandbox {self.sandbox}" if self.sandbox else "",
            f"mode {self.mode}" if self.mode else "",
            f"{format_tokens(self.total_tokens)} tokens" if self.total_tokens else "",
            format_total_costs(self.usd, is_least=self.has_unknown_costs),
            self._format_context_share(),
            hint,
        ]
        shown = [figure for figure in figures if figure]
        needed = len(self.model) + sum(len(glyphs.dot) + len(figure) for figure in shown)
        model = self.model
        if needed > columns:
            # Drop the provider first.
            model = self.model.partition(":")[2] or self.model
        if hint and len(model) + len(glyphs.dot) + len(hint) > columns:
            return truncate(hint, columns, glyphs.more), ""
        return fit_with_figures(model, shown, columns, glyphs, min_columns=min(len(model), columns))

    def _format_context_share(self) -> str:
        if not self.context_tokens:
            return ""
        size = self.context_window
        if not size:
            return f"context {format_tokens(self.context_tokens)}"
        return f"context {self.context_tokens / size:.0%}"
