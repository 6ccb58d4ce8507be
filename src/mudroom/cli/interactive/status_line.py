"""The line at the bottom: model, context, tokens, sandbox, mode, as many of them as there is room for."""

from __future__ import annotations

from ..._core.events import AnyEvent, RunFinished, RunStarted, SessionOpened, TurnFinished
from ...pricing import context_window
from ..output.text import Glyphs, fit_with_figures, format_tokens


class StatusLine:
    """A fold of events to what the line shows."""

    def __init__(self) -> None:
        self.model, self.sandbox, self.mode, self.context_tokens, self.total_tokens, self.usd = (
            "",
            "",
            "",
            0,
            0,
            0.0,
        )

    def apply(self, event: AnyEvent) -> None:
        """Take in the next event."""
        if isinstance(event, SessionOpened):
            self.sandbox = event.sandbox
        elif isinstance(event, RunStarted) and not event.brief.depth:
            self.model = event.brief.model
        elif isinstance(event, RunFinished) and "." not in event.run:
            self.usd += event.report.usd or 0.0
        elif isinstance(event, TurnFinished):
            self.total_tokens += event.message.usage.total_tokens
            if "." not in event.run:
                self.context_tokens = event.message.usage.total_tokens

    def format_line(self, columns: int, signs: Glyphs, *, hint: str = "") -> tuple[str, str]:
        """(model, all the rest) in so many columns. `hint`: the keys that matter now; it is the last to go."""
        figures = [
            f"sandbox {self.sandbox}" if self.sandbox else "",
            f"mode {self.mode}" if self.mode else "",
            f"{format_tokens(self.total_tokens)} tokens" if self.total_tokens else "",
            f"${self.usd:.2f}" if self.usd >= 0.005 else "",
            self._share(),
            hint,
        ]
        shown = [figure for figure in figures if figure]
        whole = len(self.model) + sum(len(signs.dot) + len(figure) for figure in shown) <= columns
        model = self.model if whole else self.model.partition(":")[2] or self.model
        return fit_with_figures(model, shown, columns, signs, min_columns=min(len(model), columns))

    def _share(self) -> str:
        if not self.context_tokens:
            return ""
        size = context_window(self.model)
        return (
            f"context {self.context_tokens / size:.0%}"
            if size
            else f"context {format_tokens(self.context_tokens)} of ?"
        )
