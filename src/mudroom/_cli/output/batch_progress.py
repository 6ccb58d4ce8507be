"""A batch's progress on stderr: a bar on terminals, elsewhere a line every ten seconds."""

from __future__ import annotations

import sys
import time
from contextlib import suppress

from ..batches.status import BatchStatus
from .progress import print_notice, supports_cursor
from .standard_output import draw
from .text import wrap

_BAR_WIDTH = 30
_LINE_SECONDS = 10.0
_SCREEN_SECONDS = 0.5
_OBSTACLES = {
    "provider": "waits for: the provider, which asks to slow down",
    "parallel": "waits for: --parallel",
}


def format_counts(status: BatchStatus) -> str:
    parts = [f"{status.done:,} of {status.total:,} done"]
    if status.failed:
        reasons = sorted(status.reasons.items())
        named = ", ".join(f"{count:,} {reason}" for reason, count in reasons if reason != "GOAL")
        parts.append(f"{status.failed:,} failed ({named})")
    parts.append(f"{status.running:,} running")
    return ", ".join(parts)


def format_pace(status: BatchStatus) -> str:
    parts = [
        f"{status.lines_per_second:,.1f} lines/s",
        f"{status.requests_per_second:,.1f} requests/s",
        f"{status.tokens:,} tokens",
    ]
    if status.usd or status.usd_limit is not None:
        parts.append(_format_costs(status))
    if status.seconds_left is not None and status.state == "running":
        parts.append(f"{_format_seconds(status.seconds_left)} left")
    if status.state == "stopping":
        parts.append(status.state)
    elif obstacle := _OBSTACLES.get(status.waits_for):
        limit = f" {status.parallel:,}" if status.waits_for == "parallel" else ""
        parts.append(obstacle + limit)
    return ", ".join(parts)


def _format_costs(status: BatchStatus) -> str:
    text = f"${status.usd:,.2f}"
    if status.usd_limit is not None:
        text += f" of ${status.usd_limit:,.2f}"
    if status.projected_usd and status.done < status.total:
        text += f" (about ${status.projected_usd:,.2f} for all)"
    return text


def _format_seconds(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


class BatchScreen:
    def __init__(self, *, quiet: bool, plain: bool) -> None:
        self._is_quiet = quiet
        self._moves_cursor = not plain and supports_cursor(sys.stderr)
        self._next_at = time.monotonic() + (0.0 if self._moves_cursor else _LINE_SECONDS)
        self._rows = 0
        self._printed: set[str] = set()

    def show(self, status: BatchStatus) -> None:
        """Show the status if the one on screen is old enough."""
        now = time.monotonic()
        if self._is_quiet or now < self._next_at:
            return
        if self._moves_cursor:
            self._next_at = now + _SCREEN_SECONDS
            self._draw(status)
        else:
            self._next_at = now + _LINE_SECONDS
            print_notice(f"{format_counts(status)}; {format_pace(status)}", prefix="")

    def print_line(self, text: str) -> None:
        if not self._is_quiet:
            self.clear()
            print_notice(text)

    def print_once(self, text: str) -> None:
        if text not in self._printed:
            self._printed.add(text)
            self.print_line(text)

    def clear(self) -> None:
        if self._rows:
            # Also go to the first column: Ctrl-C shows as ^C where the cursor was.
            self._write(f"\r\x1b[{self._rows}A\x1b[J")
            self._rows = 0

    def _draw(self, status: BatchStatus) -> None:
        columns = _get_columns() - 1
        width = min(_BAR_WIDTH, columns)
        filled = width * status.done // max(1, status.total)
        bar = "█" * filled + "░" * (width - filled)
        counts = format_counts(status)
        texts = [f"{bar} {counts}"] if width + 1 + len(counts) <= columns else [bar, counts]
        rows = [row for text in [*texts, format_pace(status)] for row in wrap(text, columns)]
        self.clear()
        self._write("".join(f"{row}\n" for row in rows))
        self._rows = len(rows)

    def _write(self, text: str) -> None:
        # A closed terminal must not end the batch.
        with suppress(OSError):
            draw(sys.stderr, text)
            sys.stderr.flush()


def _get_columns() -> int:
    from shutil import get_terminal_size

    return max(20, get_terminal_size().columns)
