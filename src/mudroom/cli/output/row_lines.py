"""Rows below a tree of runs: claimed tasks of the board, and named children that do not work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...projections.board_lines import MARKS
from ...projections.current_team import describe_state
from ...projections.run_tree import RunTree
from ...projections.run_view import RunView, format_name
from ...projections.safe_text import sanitize_line
from ...projections.team import Teammate
from .text import (
    Glyphs,
    Line,
    choose_agent_color,
    fit_with_figures,
    format_tokens,
    measure_width,
    truncate,
)

MAX_CLAIMS = 5
"""Claimed tasks shown."""

_MIN_COLUMNS = 48
"""Width of a text below which its figures are dropped."""


def format_claims(
    tree: RunTree, root: RunView, columns: int, glyphs: Glyphs
) -> Iterator[tuple[str, Line]]:
    """Yield a row for each task of the board that a run at work has claimed."""
    claims = [
        (run, task, subject)
        for run in tree.walk(root.run_id)
        if not run.report
        for task, subject in list(run.claims.items())
    ]
    for run, task, subject in claims[:MAX_CLAIMS]:
        text = f"{MARKS['in_progress']} #{task} {sanitize_line(subject)}"
        shown, tail = fit_with_figures(
            text, [run.short_label], columns, glyphs, min_columns=_MIN_COLUMNS
        )
        yield "", [(shown, ""), (tail, "dim")]


def format_idle(
    teammates: Sequence[Teammate], columns: int, glyphs: Glyphs, *, selected: str
) -> Iterator[tuple[str, Line]]:
    """Yield a row for each named child that does not work, with the id of its last run.

    Arguments:
        selected: id of the marked run.
    """
    for teammate in teammates:
        is_selected = teammate.run_id == selected
        stem = f"{glyphs.mark} @" if is_selected else "@"
        room = columns - measure_width(stem)
        name = truncate(format_name(teammate.name), room, glyphs.more)
        shown, tail = fit_with_figures(
            f"  {describe_state(teammate)}",
            [f"{format_tokens(teammate.usage.total_tokens)} tokens"],
            room - measure_width(name),
            glyphs,
            min_columns=_MIN_COLUMNS,
        )
        color = choose_agent_color(teammate.agent)
        yield (
            teammate.run_id,
            [
                (truncate(stem, columns, ""), "dim"),
                (name, f"bold {color} reverse" if is_selected else f"bold {color}"),
                (shown, ""),
                (tail, "dim"),
            ],
        )
