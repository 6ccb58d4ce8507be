"""The tree of runs as lines, for the live screen and for the recorded one: two a run, many runs folded into counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from heapq import nsmallest

from msgspec import Struct

from ..._core.agents import Reason
from ...projections.run_tree import RunView, State, Tree
from .text import (
    UNICODE,
    Glyphs,
    Line,
    color_of,
    cut,
    fit,
    one_line,
    plural,
    seconds,
    tokens,
    width,
)

STALL = 60.0
"""Seconds without any event after which a running run is marked quiet."""

BAR = 5
"""Columns of the bar that says how much of a run's budget is used up."""

HEADLINE, ACTION = 48, 16
"""Columns that a root's headline and a child's last action keep before figures have to go."""

_STYLES = {State.DONE: "green", State.STOPPED: "yellow", State.FAILED: "red"}
_RANKS = {State.FAILED: 0, State.RUNNING: 1, State.WAITING: 1, State.STOPPED: 2, State.DONE: 3}


class Look(Struct, frozen=True, kw_only=True):
    """How a tree is drawn.

    Arguments:
        columns: width of the screen. limit: most runs shown below a root; None is all of them.
        now: seconds since 1970; None for a record, where a run without an end is unfinished.
        ids: whether run ids are shown. selected: id of the run that is marked.
        told: ids of children that stand on the screen already, and are left out.
        left: the tree is left there while its root goes on: what it says of the root is what became of its tasks.
    """

    columns: int = 80
    limit: int | None = None
    now: float | None = None
    ids: bool = False
    selected: str = ""
    told: Collection[str] = ()
    left: bool = False
    signs: Glyphs = UNICODE


def rows(tree: Tree, root: RunView, look: Look) -> list[Line]:
    """A root run and all below it: its headline, then two lines a child and a count of those that are folded away."""
    return [line for _, line in placed(tree, root, look)]


def placed(tree: Tree, root: RunView, look: Look) -> list[tuple[str, Line]]:
    """The same, each line with the id of the run it tells of; "" for a count."""
    return [
        (root.run_id, _headline(tree, root, look)),
        *_below(tree, root, _chosen(tree, root, look), "", look),
    ]


def outcome(run: RunView) -> str:
    """How a finished run ended: "Done", or its reason and what went wrong; "" while it runs."""
    if not run.report:
        return ""
    if run.report.reason is Reason.GOAL:
        return "Done"
    words = f"{run.report.reason}, recovered" if run.report.recovered else str(run.report.reason)
    return f"{words}: {run.error}" if run.error else words


def figures(run: RunView, now: float | None, *, uses: bool = True) -> list[str]:
    """What a run has cost: tool uses, tokens of its own and below it, time."""
    took = run.seconds(run.last_at if now is None else now)
    below = [f"{tokens(run.subtree.total_tokens)} with children"] if run.below.total_tokens else []
    count = plural(run.tools, "tool use" if uses else "tool")
    return [count, f"{tokens(run.usage.total_tokens)} tokens", *below, seconds(took)]


def share(run: RunView, now: float) -> float | None:
    """The part of its budget that is used up, of the limit that is nearest; None where it has none. `now`: seconds since 1970."""
    budget, spent = run.budget, run.subtree
    pairs = (
        (run.turn, budget.turns),
        (run.seconds(now), budget.seconds),
        (spent.input_tokens, budget.input_tokens),
        (spent.output_tokens, budget.output_tokens),
        (spent.total_tokens, budget.total_tokens),
    )
    return max((min(1.0, used / most) for used, most in pairs if most), default=None)


def doing(run: RunView, look: Look) -> str:
    """What a run is about: its last action, a model call that waits to be repeated, or how it ended."""
    if run.report:
        return outcome(run)
    if run.retried:
        cause = f"HTTP {run.retried.status}" if run.retried.status else "connection lost"
        return f"retry {run.retried.attempt} in {seconds(run.retried.delay)} ({cause})"
    if look.now is not None and run.tail and not run.open:
        return one_line(run.tail) if run.depth else f"answering{look.signs.more}"
    action = run.action or one_line(run.tail) or f"thinking{look.signs.more}"
    return f"unfinished: {action}" if look.now is None else action


def _headline(tree: Tree, run: RunView, look: Look) -> Line:
    words = doing(run, look)
    if (
        look.now is not None
        and not run.retried
        and ("task" in list(run.open.values()) or look.left)
    ):
        words = _census(tree, run, look)
    parts = [run.run_id if look.ids else "", f"turn {run.turn}" if run.turn else "", words]
    return _line(
        look.signs.head, look.signs.dot.join(filter(None, parts)), run, look, least=HEADLINE
    )


def _census(tree: Tree, run: RunView, look: Look) -> str:
    children = _children(tree, run.run_id, look)
    begun = {child.call_id for child in children}
    states = Counter(child.state for child in children)
    counts = {
        "running": states[State.RUNNING] + states[State.WAITING],
        "not begun": sum(
            name == "task" and call not in begun for call, name in list(run.open.items())
        ),
        "done": states[State.DONE],
        "stopped": states[State.STOPPED],
        "failed": states[State.FAILED],
    }
    told = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    return f"{plural(sum(counts.values()), 'task')}: {told}"


def _children(tree: Tree, run_id: str, look: Look) -> list[RunView]:
    return [child for child in tree.children(run_id) if child.run_id not in look.told]


def _chosen(tree: Tree, root: RunView, look: Look) -> Collection[str] | None:
    """Ids of the runs to show when there are too many: failed ones in half the places, slow ones, and all above them."""
    runs, limit = (
        [run for child in _children(tree, root.run_id, look) for run in tree.walk(child.run_id)],
        look.limit,
    )
    if limit is None or len(runs) <= limit:
        return None
    chosen: set[str] = set()
    failed, others = list[RunView](), list[RunView]()
    for run in runs:
        (failed if run.state is State.FAILED else others).append(run)
    failed = nsmallest(limit // 2, failed, key=_rank)
    others = nsmallest(limit - len(failed), others, key=_rank)
    for run in (*failed, *others):
        above: RunView | None = run
        while above and above is not root and above.run_id not in chosen:
            chosen.add(above.run_id)
            above = tree.runs.get(above.parent)
    return chosen


def _rank(run: RunView) -> tuple[int, float]:
    return _RANKS[run.state], -run.finished if run.report else run.started


def _below(
    tree: Tree, parent: RunView, chosen: Collection[str] | None, stem: str, look: Look
) -> Iterator[tuple[str, Line]]:
    children, signs = _children(tree, parent.run_id, look), look.signs
    hidden: list[RunView] = []
    if chosen is not None:
        hidden = [child for child in children if child.run_id not in chosen]
        children = sorted((child for child in children if child.run_id in chosen), key=_rank)
    for n, child in enumerate(children, 1):
        last = n == len(children) and not hidden
        under = stem + (" " * len(signs.bar) if last else signs.bar)
        yield child.run_id, _title(child, stem + (signs.end if last else signs.tee), look)
        yield child.run_id, _line(under + signs.hook, doing(child, look), child, look)
        yield from _below(tree, child, chosen, under, look)
    if hidden:
        states = Counter(child.state for child in hidden)
        counts = ", ".join(f"{states[state]} {state}" for state in State if states[state])
        text = f"{len(hidden):,} more: {counts}"
        room = look.columns - width(stem + signs.end)
        yield (
            "",
            [
                (cut(stem + signs.end, look.columns, ""), "dim"),
                (cut(text, room, signs.more), "dim"),
            ],
        )


def _title(run: RunView, stem: str, look: Look) -> Line:
    agent, room = one_line(run.agent), look.columns - width(stem)
    name = cut(f"{agent}#{run.run_id}" if look.ids else agent, room, look.signs.more)
    words = one_line(run.description) or one_line(run.prompt)
    marked = run.run_id == look.selected
    if marked:
        stem = stem[:-1] + look.signs.mark
    return [
        (cut(stem, look.columns, ""), "bold" if marked else "dim"),
        (name, f"bold {color_of(run.agent)}{' reverse' if marked else ''}"),
        (cut(f"  {words}", room - width(name), look.signs.more), ""),
    ]


def _line(stem: str, words: str, run: RunView, look: Look, *, least: int = ACTION) -> Line:
    costs = figures(run, look.now, uses=bool(run.report))
    used = share(run, look.now) if look.now is not None and not run.report else None
    if used is not None:
        full = round(used * BAR)
        costs = [look.signs.full * full + look.signs.empty * (BAR - full), *costs]
    silence = look.now - run.last_at if look.now is not None and run.state is State.RUNNING else 0.0
    if silence >= STALL:
        costs = [*costs, f"quiet {seconds(silence)}"]
    shown, tail = fit(
        words, costs, look.columns - width(stem), look.signs, bracket=bool(run.report), least=least
    )
    return [
        (cut(stem, look.columns, ""), "dim"),
        (shown, _STYLES.get(run.state, "")),
        (tail, "yellow" if silence >= STALL else "dim"),
    ]
