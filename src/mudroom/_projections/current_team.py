"""The named children of a conversation as they are now: without what a rewind removed.

for teammate in list_idle(RunTree.from_events(events)):
    print(describe_state(teammate))
"""

from __future__ import annotations

from .._core.listings import count_noun
from .._core.runs import InboxMessage
from .reason_words import describe_reason
from .run_tree import RunTree
from .run_view import RunView
from .team import Teammate


def list_teammates(tree: RunTree) -> list[Teammate]:
    """List the named children, oldest first.

    Those of root runs that are no prompts, such as tasks of a board, are among them.
    """
    if not tree.roster.teammates:
        return []
    tasks = [root.run_id for root in list(tree.roots) if root.depth]
    return tree.roster.list_current_of_roots(tree.latest_root, *tasks)


def list_names(tree: RunTree) -> list[str]:
    """List the names of those named children that can work."""
    teammates = list_teammates(tree)
    return [each.name for each in teammates if not (each.is_replaced or each.is_stopped)]


def list_idle(tree: RunTree) -> list[Teammate]:
    """List the named children that a message starts again."""
    return [teammate for teammate in list_teammates(tree) if teammate.is_idle]


def list_unread(tree: RunTree, run: RunView) -> list[InboxMessage]:
    """List the messages that a run has not read; for a named child, also those to its next run."""
    unread = {} if run.report else dict(run.unread)
    for teammate in list_teammates(tree):
        if teammate.run_id == run.run_id:
            unread = teammate.unread | unread
    return list(unread.values())


def describe_state(teammate: Teammate) -> str:
    """Describe a named child's state: "idle, 2 runs, 0 unread"."""
    state = "replaced by a newer child" if teammate.is_replaced else str(teammate.state)
    if teammate.is_idle and teammate.report and not teammate.report.ok:
        state += f", last run: {describe_reason(teammate.report.reason)}"
    runs = count_noun(len(teammate.briefs), "run")
    return f"{state}, {runs}, {len(teammate.unread):,} unread"
