"""The tree of runs as lines, for the live screen and for the recorded one: two a run, many runs folded into counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from heapq import nsmallest

from msgspec import Struct

from ..._core.agents import Reason
from ...projections.run_tree import RunState, RunTree, RunView
from .text import (
    UNICODE,
    Glyphs,
    Line,
    agent_color,
    count_noun,
    display_width,
    fit_with_figures,
    format_seconds,
    format_tokens,
    sanitize_line,
    truncate,
)

QUIET_SECONDS = 60.0
"""Seconds without any event after which a running run is marked quiet."""

BAR_COLUMNS = 5
"""Columns of the bar that says how much of a run's budget is used up."""

MIN_HEADLINE_COLUMNS, MIN_ACTION_COLUMNS = 48, 16
"""Columns that a root's headline and a child's last action keep before figures have to go."""

_STYLES = {RunState.DONE: "green", RunState.STOPPED: "yellow", RunState.FAILED: "red"}
_RANKS = {
    RunState.FAILED: 0,
    RunState.RUNNING: 1,
    RunState.WAITING: 1,
    RunState.STOPPED: 2,
    RunState.DONE: 3,
}


class TreeStyle(Struct, frozen=True, kw_only=True):
    """How a tree is drawn.

    Arguments:
        columns: width of the screen. limit: most runs shown below a root; None is all of them.
        now: seconds since 1970; None for a record, where a run without an end is unfinished.
        ids: whether run ids are shown. selected: id of the run that is marked.
        told: ids of children that stand on the screen already, and are left out.
        left: the tree is left there while its root goes on: what it says of the root is what became of its tasks.
    """

    columns: int = 80
    max_runs: int | None = None
    now: float | None = None
    show_ids: bool = False
    selected: str = ""
    hidden_runs: Collection[str] = ()
    is_snapshot: bool = False
    glyphs: Glyphs = UNICODE


def format_tree(tree: RunTree, root: RunView, look: TreeStyle) -> list[Line]:
    """A root run and all below it: its headline, then two lines a child and a count of those that are folded away."""
    return [line for _, line in format_tree_by_run(tree, root, look)]


def format_tree_by_run(tree: RunTree, root: RunView, look: TreeStyle) -> list[tuple[str, Line]]:
    """The same, each line with the id of the run it tells of; "" for a count."""
    return [
        (root.run_id, _headline(tree, root, look)),
        *_below(tree, root, _chosen(tree, root, look), "", look),
    ]


def describe_outcome(run: RunView) -> str:
    """How a finished run ended: "Done", or its reason and what went wrong; "" while it runs."""
    if not run.report:
        return ""
    if run.report.reason is Reason.GOAL:
        return "Done"
    words = f"{run.report.reason}, recovered" if run.report.recovered else str(run.report.reason)
    return f"{words}: {run.error}" if run.error else words


def format_figures(run: RunView, now: float | None, *, says_uses: bool = True) -> list[str]:
    """What a run has cost: tool uses, tokens of its own and below it, time."""
    took = run.seconds(run.last_event_at if now is None else now)
    below = (
        [f"{format_tokens(run.total_usage.total_tokens)} with children"]
        if run.descendant_usage.total_tokens
        else []
    )
    count = count_noun(run.tool_call_count, "tool use" if says_uses else "tool")
    return [count, f"{format_tokens(run.usage.total_tokens)} tokens", *below, format_seconds(took)]


def budget_share(run: RunView, now: float) -> float | None:
    """The part of its budget that is used up, of the limit that is nearest; None where it has none. `now`: seconds since 1970."""
    budget, spent = run.budget, run.total_usage
    pairs = (
        (run.turn, budget.turns),
        (run.seconds(now), budget.seconds),
        (spent.input_tokens, budget.input_tokens),
        (spent.output_tokens, budget.output_tokens),
        (spent.total_tokens, budget.total_tokens),
    )
    return max((min(1.0, used / most) for used, most in pairs if most), default=None)


def describe_activity(run: RunView, look: TreeStyle) -> str:
    """What a run is about: its last action, a model call that waits to be repeated, or how it ended."""
    if run.report:
        return describe_outcome(run)
    if run.pending_retry:
        cause = (
            f"HTTP {run.pending_retry.status}" if run.pending_retry.status else "connection lost"
        )
        return f"retry {run.pending_retry.attempt} in {format_seconds(run.pending_retry.delay)} ({cause})"
    if look.now is not None and run.streamed_tail and not run.open_calls:
        return sanitize_line(run.streamed_tail) if run.depth else f"answering{look.glyphs.more}"
    action = run.last_action or sanitize_line(run.streamed_tail) or f"thinking{look.glyphs.more}"
    return f"unfinished: {action}" if look.now is None else action


def _headline(tree: RunTree, run: RunView, look: TreeStyle) -> Line:
    words = describe_activity(run, look)
    if (
        look.now is not None
        and not run.pending_retry
        and ("task" in list(run.open_calls.values()) or look.is_snapshot)
    ):
        words = _census(tree, run, look)
    parts = [run.run_id if look.show_ids else "", f"turn {run.turn}" if run.turn else "", words]
    return _line(
        look.glyphs.head,
        look.glyphs.dot.join(filter(None, parts)),
        run,
        look,
        least=MIN_HEADLINE_COLUMNS,
    )


def _census(tree: RunTree, run: RunView, look: TreeStyle) -> str:
    children = _children(tree, run.run_id, look)
    begun = {child.call_id for child in children}
    states = Counter(child.state for child in children)
    counts = {
        "running": states[RunState.RUNNING] + states[RunState.WAITING],
        "not begun": sum(
            name == "task" and call not in begun for call, name in list(run.open_calls.items())
        ),
        "done": states[RunState.DONE],
        "stopped": states[RunState.STOPPED],
        "failed": states[RunState.FAILED],
    }
    told = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    return f"{count_noun(sum(counts.values()), 'task')}: {told}"


def _children(tree: RunTree, run_id: str, look: TreeStyle) -> list[RunView]:
    return [child for child in tree.children(run_id) if child.run_id not in look.hidden_runs]


def _chosen(tree: RunTree, root: RunView, look: TreeStyle) -> Collection[str] | None:
    """Ids of the runs to show when there are too many: failed ones in half the places, slow ones, and all above them."""
    runs, limit = (
        [run for child in _children(tree, root.run_id, look) for run in tree.walk(child.run_id)],
        look.max_runs,
    )
    if limit is None or len(runs) <= limit:
        return None
    chosen: set[str] = set()
    failed, others = list[RunView](), list[RunView]()
    for run in runs:
        (failed if run.state is RunState.FAILED else others).append(run)
    failed = nsmallest(limit // 2, failed, key=_rank)
    others = nsmallest(limit - len(failed), others, key=_rank)
    for run in (*failed, *others):
        above: RunView | None = run
        while above and above is not root and above.run_id not in chosen:
            chosen.add(above.run_id)
            above = tree.runs.get(above.parent)
    return chosen


def _rank(run: RunView) -> tuple[int, float]:
    return _RANKS[run.state], -run.finished_at if run.report else run.started_at


def _below(
    tree: RunTree, parent: RunView, chosen: Collection[str] | None, stem: str, look: TreeStyle
) -> Iterator[tuple[str, Line]]:
    children, signs = _children(tree, parent.run_id, look), look.glyphs
    hidden: list[RunView] = []
    if chosen is not None:
        hidden = [child for child in children if child.run_id not in chosen]
        children = sorted((child for child in children if child.run_id in chosen), key=_rank)
    for n, child in enumerate(children, 1):
        last = n == len(children) and not hidden
        under = stem + (" " * len(signs.bar) if last else signs.bar)
        yield child.run_id, _title(child, stem + (signs.end if last else signs.tee), look)
        yield child.run_id, _line(under + signs.hook, describe_activity(child, look), child, look)
        yield from _below(tree, child, chosen, under, look)
    if hidden:
        states = Counter(child.state for child in hidden)
        counts = ", ".join(f"{states[state]} {state}" for state in RunState if states[state])
        text = f"{len(hidden):,} more: {counts}"
        room = look.columns - display_width(stem + signs.end)
        yield (
            "",
            [
                (truncate(stem + signs.end, look.columns, ""), "dim"),
                (truncate(text, room, signs.more), "dim"),
            ],
        )


def _title(run: RunView, stem: str, look: TreeStyle) -> Line:
    agent, room = sanitize_line(run.agent), look.columns - display_width(stem)
    name = truncate(f"{agent}#{run.run_id}" if look.show_ids else agent, room, look.glyphs.more)
    words = sanitize_line(run.description) or sanitize_line(run.prompt)
    marked = run.run_id == look.selected
    if marked:
        stem = stem[:-1] + look.glyphs.mark
    return [
        (truncate(stem, look.columns, ""), "bold" if marked else "dim"),
        (name, f"bold {agent_color(run.agent)}{' reverse' if marked else ''}"),
        (truncate(f"  {words}", room - display_width(name), look.glyphs.more), ""),
    ]


def _line(
    stem: str, words: str, run: RunView, look: TreeStyle, *, least: int = MIN_ACTION_COLUMNS
) -> Line:
    costs = format_figures(run, look.now, says_uses=bool(run.report))
    used = budget_share(run, look.now) if look.now is not None and not run.report else None
    if used is not None:
        full = round(used * BAR_COLUMNS)
        costs = [look.glyphs.full * full + look.glyphs.empty * (BAR_COLUMNS - full), *costs]
    silence = (
        look.now - run.last_event_at
        if look.now is not None and run.state is RunState.RUNNING
        else 0.0
    )
    if silence >= QUIET_SECONDS:
        costs = [*costs, f"quiet {format_seconds(silence)}"]
    shown, tail = fit_with_figures(
        words,
        costs,
        look.columns - display_width(stem),
        look.glyphs,
        in_brackets=bool(run.report),
        min_columns=least,
    )
    return [
        (truncate(stem, look.columns, ""), "dim"),
        (shown, _STYLES.get(run.state, "")),
        (tail, "yellow" if silence >= QUIET_SECONDS else "dim"),
    ]
