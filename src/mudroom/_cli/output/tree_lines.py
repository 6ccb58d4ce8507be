"""The run tree as lines: two per run; many runs are folded into counts.

Below it are rows for the board's claimed tasks, and for idle named children.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from heapq import nsmallest

from msgspec import Struct
from msgspec.structs import replace

from ..._core.listings import count_noun
from ..._core.messages import CHARACTERS_PER_TOKEN
from ..._projections.board_lines import MARKS
from ..._projections.reason_words import describe_reason
from ..._projections.run_tree import RunTree, describe_state
from ..._projections.run_view import CommandView, RunState, RunView, describe_merge, format_name
from ..._projections.safe_text import sanitize, sanitize_line
from ..._projections.team import Teammate
from .text import (
    UNICODE,
    Glyphs,
    Line,
    choose_agent_color,
    fit_with_figures,
    format_seconds,
    format_tokens,
    measure_width,
    truncate,
)

# Last output lines to show of a command that a root run waits for.
MAX_OUTPUT_LINES = 5

# Claimed tasks to show.
MAX_CLAIMS = 5

# Seconds without an event after which a running run is marked quiet.
QUIET_SECONDS = 60.0

# Width of the bar for the used part of a run's budget.
BAR_COLUMNS = 5

# Minimum widths of a text and a child's activity; figures are dropped to keep them.
_MIN_COLUMNS, MIN_ACTION_COLUMNS = 48, 16

_STYLES = {RunState.DONE: "green", RunState.STOPPED: "yellow", RunState.FAILED: "red"}
# Order of choosing runs when there are too many to show.
_RANKS = {
    RunState.FAILED: 0,
    RunState.RUNNING: 1,
    RunState.WAITING: 1,
    RunState.STOPPED: 2,
    RunState.DONE: 3,
}


class TreeStyle(Struct, frozen=True, kw_only=True):
    """Options for drawing a tree.

    `now` is None for a recorded tree, whose open runs are unfinished; `max_runs` is None for all.
    `hidden_runs` are already on screen; so are `printed_runs`, but these are counted. `idle`
    children have one row each instead of rows for their runs. A snapshot is drawn while the root is
    still running: its headline counts tasks, without figures that would soon be outdated.
    """

    columns: int = 80
    max_runs: int | None = None
    now: float | None = None
    show_ids: bool = False
    selected: str = ""
    hidden_runs: Collection[str] = ()
    printed_runs: Collection[str] = ()
    asking_runs: Collection[str] = ()
    idle: Sequence[Teammate] = ()
    is_snapshot: bool = False
    glyphs: Glyphs = UNICODE


def format_tree(tree: RunTree, root: RunView, style: TreeStyle) -> list[Line]:
    return [line for _, line in format_tree_by_run(tree, root, style)]


def format_tree_by_run(tree: RunTree, root: RunView, style: TreeStyle) -> list[tuple[str, Line]]:
    """Format a tree; return each line with the id of its run, "" for a count."""
    if style.idle:
        runs = (brief.run_id for teammate in style.idle for brief in teammate.briefs)
        style = replace(style, printed_runs={*style.printed_runs, *runs})
    shown = _choose_runs(tree, root, style)
    return [
        (root.run_id, _format_headline(tree, root, style)),
        *_format_output(root, style),
        *_format_descendants(tree, root, shown, "", style),
        *format_claims(tree, root, style.columns, style.glyphs),
        *format_idle(style.idle, style.columns, style.glyphs, selected=style.selected),
    ]


def format_command(command: CommandView, style: TreeStyle) -> Line:
    is_selected = command.id == style.selected
    stem = f"{style.glyphs.mark} $ " if is_selected else "$ "
    seconds = max(0.0, (style.now or command.started_at) - command.started_at)
    shown, tail = fit_with_figures(
        command.title,
        ["background", format_seconds(seconds)],
        style.columns - measure_width(stem),
        style.glyphs,
        min_columns=MIN_ACTION_COLUMNS,
    )
    row_style = "bold reverse" if is_selected else ""
    return [(truncate(stem, style.columns, ""), "dim"), (shown, row_style), (tail, "dim")]


def describe_outcome(run: RunView) -> str:
    """Describe how a run ended, with its error and merge; "" while it is running."""
    if not run.report:
        return ""
    outcome = describe_reason(run.report.reason).capitalize()
    if run.report.recovered:
        outcome += ", with a summary"
    if merge := describe_merge(run):
        outcome += f", {merge}"
    return f"{outcome}: {run.error}" if run.error else outcome


def describe_task(run: RunView) -> str:
    if run.continues:  # The prompt is tagged messages or a note; the description is a title.
        return f"> task{f' ({run.label})' if run.name else ''}: {sanitize_line(run.title)}"
    names = filter(None, (run.label if run.name else "", sanitize_line(run.description)))
    label = ": ".join(names)
    return f"> task{f' ({label})' if label else ''}: {sanitize_line(run.prompt)}"


def format_figures(run: RunView, now: float | None, *, says_uses: bool = True) -> list[str]:
    """Format a run's tool calls, tokens, tokens of its subtree, and time.

    Without `now`, time ends at the last event. `says_uses`: "2 tool uses", not "2 tools".
    """
    seconds = run.count_seconds(run.last_event_at if now is None else now)
    figures = [
        count_noun(run.tool_call_count, "tool use" if says_uses else "tool"),
        _format_own_tokens(run),
    ]
    if run.descendant_usage.total_tokens:
        figures.append(f"{format_tokens(run.total_usage.total_tokens)} with children")
    figures.append(format_seconds(seconds))
    return figures


def _format_own_tokens(run: RunView) -> str:
    """Format a run's tokens; those of a streaming answer are an estimate ("~")."""
    streamed = run.streamed_length // CHARACTERS_PER_TOKEN
    tokens = format_tokens(run.usage.total_tokens + streamed)
    return f"~{tokens} tokens" if streamed else f"{tokens} tokens"


def compute_budget_share(run: RunView, now: float) -> float | None:
    """Compute the used share of the nearest limit, 0.0 to 1.0; None without limits."""
    budget = run.budget
    usage = run.total_usage
    pairs = (
        (run.turn, budget.turns),
        (run.count_seconds(now), budget.seconds),
        (usage.input_tokens, budget.input_tokens),
        (usage.output_tokens, budget.output_tokens),
        (usage.total_tokens, budget.total_tokens),
    )
    return max((min(1.0, used / limit) for used, limit in pairs if limit), default=None)


def describe_activity(run: RunView, style: TreeStyle) -> str:
    if run.report:
        return describe_outcome(run)
    if run.run_id in style.asking_runs:
        return "waits for your answer"
    if retry := run.pending_retry:
        if not retry.delay:
            return f"retry {retry.attempt}: {sanitize_line(retry.error)}"
        cause = f"HTTP {retry.status}" if retry.status else "connection lost"
        return f"retry {retry.attempt} in {format_seconds(retry.delay)} ({cause})"
    streamed = sanitize_line(run.streamed_tail)
    if style.now is not None and run.streamed_tail and not run.open_calls:
        return streamed if run.depth else f"answering{style.glyphs.more}"
    action = run.last_action or streamed or f"thinking{style.glyphs.more}"
    return f"unfinished: {action}" if style.now is None else action


def _format_headline(tree: RunTree, run: RunView, style: TreeStyle) -> Line:
    is_live = style.now is not None and not run.pending_retry
    has_tasks = "run" in list(run.open_calls.values()) or run.state is RunState.WAITING
    if is_live and (style.is_snapshot or has_tasks):
        activity = _count_tasks(tree, run, style)
    else:
        activity = describe_activity(run, style)
    title = sanitize_line(run.description) if run.depth and is_live else ""
    turn = f"turn {run.turn}" if run.turn else ""
    parts = [run.run_id if style.show_ids else "", title, turn, activity]
    text = style.glyphs.dot.join(filter(None, parts))
    if style.is_snapshot and not run.report:
        head = style.glyphs.head
        room = style.columns - measure_width(head)
        return [(head, "dim"), (truncate(text, room, style.glyphs.more), "")]
    return _format_activity(style.glyphs.head, text, run, style, min_columns=_MIN_COLUMNS)


def _format_output(run: RunView, style: TreeStyle) -> Iterator[tuple[str, Line]]:
    if style.now is None or style.is_snapshot or not run.open_calls:
        return
    stem = "   "
    room = style.columns - len(stem)
    for row in run.output_tail.splitlines()[-MAX_OUTPUT_LINES:]:
        yield (
            "",
            [(stem, ""), (truncate(sanitize(row).expandtabs(4), room, style.glyphs.more), "dim")],
        )


def _count_tasks(tree: RunTree, run: RunView, style: TreeStyle) -> str:
    """Count tasks by state. One without a child run has not started."""
    children = _list_visible_children(tree, run.run_id, style)
    states = Counter(child.state for child in children)
    started = {child.call_id for child in children}
    # Copy: another thread may change the calls meanwhile.
    open_tasks = [call for call, view in list(run.open_calls.items()) if view == "run"]
    counts = {
        "running": states[RunState.RUNNING] + states[RunState.WAITING],
        "not started": sum(call not in started for call in open_tasks),
        "done": states[RunState.DONE],
        "stopped": states[RunState.STOPPED],
        "failed": states[RunState.FAILED],
    }
    details = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    return f"{count_noun(sum(counts.values()), 'task')}: {details}"


def _list_visible_children(tree: RunTree, run_id: str, style: TreeStyle) -> list[RunView]:
    """List the visible children; without ids, only each child's last run."""
    children = tree.children(run_id)
    hidden = set(style.hidden_runs)
    if not style.show_ids:
        hidden.update(child.continues for child in children)
    return [child for child in children if child.run_id not in hidden]


def _list_children_with_rows(tree: RunTree, run_id: str, style: TreeStyle) -> list[RunView]:
    children = _list_visible_children(tree, run_id, style)
    return [child for child in children if child.run_id not in style.printed_runs]


def _choose_runs(tree: RunTree, root: RunView, style: TreeStyle) -> Collection[str] | None:
    runs: list[RunView] = []
    for child in _list_children_with_rows(tree, root.run_id, style):
        runs.extend(tree.walk(child.run_id))
    limit = style.max_runs
    if limit is None or len(runs) <= limit:
        return None
    # Failures matter most, but must not hide what is still running.
    failed = [run for run in runs if run.state is RunState.FAILED]
    others = [run for run in runs if run.state is not RunState.FAILED]
    chosen = nsmallest(limit // 2, failed, key=_rank)
    chosen += nsmallest(limit - len(chosen), others, key=_rank)
    ids: set[str] = set()
    # A run without its ancestors would have no place in the tree.
    for run in chosen:
        ancestor: RunView | None = run
        while ancestor and ancestor is not root and ancestor.run_id not in ids:
            ids.add(ancestor.run_id)
            ancestor = tree.runs.get(ancestor.parent)
    return ids


def _rank(run: RunView) -> tuple[int, float]:
    # The newest ended runs, the oldest running ones.
    return _RANKS[run.state], -run.finished_at if run.report else run.started_at


def _format_descendants(
    tree: RunTree, parent: RunView, shown: Collection[str] | None, stem: str, style: TreeStyle
) -> Iterator[tuple[str, Line]]:
    """Yield run ids and lines below a run. `shown` is None for all; `stem` precedes each line."""
    glyphs = style.glyphs
    children = _list_children_with_rows(tree, parent.run_id, style)
    hidden: list[RunView] = []
    if shown is not None:
        hidden = [child for child in children if child.run_id not in shown]
        children = sorted((child for child in children if child.run_id in shown), key=_rank)
    for n, child in enumerate(children, 1):
        is_last = n == len(children) and not hidden
        branch = glyphs.end if is_last else glyphs.tee
        child_stem = stem + (" " * len(glyphs.bar) if is_last else glyphs.bar)
        activity = describe_activity(child, style)
        yield child.run_id, _format_title(child, stem + branch, style)
        yield child.run_id, _format_activity(child_stem + glyphs.hook, activity, child, style)
        yield from _format_descendants(tree, child, shown, child_stem, style)
    if hidden:
        yield "", _format_hidden(hidden, stem + glyphs.end, style)


def _format_hidden(hidden: list[RunView], stem: str, style: TreeStyle) -> Line:
    states = Counter(child.state for child in hidden)
    counts = ", ".join(f"{states[state]} {state}" for state in RunState if states[state])
    text = f"{len(hidden):,} more: {counts}"
    room = style.columns - measure_width(stem)
    return [
        (truncate(stem, style.columns, ""), "dim"),
        (truncate(text, room, style.glyphs.more), "dim"),
    ]


def _format_title(run: RunView, stem: str, style: TreeStyle) -> Line:
    more = style.glyphs.more
    room = style.columns - measure_width(stem)
    name = truncate(_format_name(run, style), room, more)
    title = sanitize_line(run.description) or sanitize_line(run.prompt)
    stem_style = "dim"
    name_style = f"bold {choose_agent_color(run.agent)}"
    if run.run_id == style.selected:
        stem = stem[:-1] + style.glyphs.mark
        stem_style = "bold"
        name_style += " reverse"
    return [
        (truncate(stem, style.columns, ""), stem_style),
        (name, name_style),
        (truncate(f"  {title}", room - measure_width(name), more), ""),
    ]


def _format_name(run: RunView, style: TreeStyle) -> str:
    if not style.show_ids:
        return run.short_label
    return f"{run.label} ({run.run_id})" if run.name else run.label


def _format_activity(
    stem: str, text: str, run: RunView, style: TreeStyle, *, min_columns: int = MIN_ACTION_COLUMNS
) -> Line:
    figures = format_figures(run, style.now, says_uses=bool(run.report))
    is_quiet = False
    if style.now is not None and not run.report:
        share = compute_budget_share(run, style.now)
        if share is not None:
            figures.insert(0, _draw_budget_bar(share, style.glyphs))
        silence = style.now - run.last_event_at
        is_working = run.state is RunState.RUNNING and run.run_id not in style.asking_runs
        is_quiet = is_working and silence >= QUIET_SECONDS
        if is_quiet:
            figures.append(f"quiet {format_seconds(silence)}")
    shown, tail = fit_with_figures(
        text,
        figures,
        style.columns - measure_width(stem),
        style.glyphs,
        in_brackets=bool(run.report),
        min_columns=min_columns,
    )
    return [
        (truncate(stem, style.columns, ""), "dim"),
        (shown, _STYLES.get(run.state, "")),
        (tail, "yellow" if is_quiet else "dim"),
    ]


def _draw_budget_bar(share: float, glyphs: Glyphs) -> str:
    full = round(share * BAR_COLUMNS)
    return glyphs.full * full + glyphs.empty * (BAR_COLUMNS - full)


def format_claims(
    tree: RunTree, root: RunView, columns: int, glyphs: Glyphs
) -> Iterator[tuple[str, Line]]:
    """Yield a row for each board task claimed by an active run."""
    claims = [
        (run, task, subject)
        for run in tree.walk(root.run_id)
        if not run.report
        # Copy: another thread may change the claims meanwhile.
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
    """Yield a row for each idle named child, with the id of its last run."""
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
