"""Leaving and coming back: list of sessions, end of a resumed conversation, line at the exit."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from ..._adapters.journals.sessions import read_events
from ..._projections.run_tree import RunTree
from ..._projections.run_view import RunView
from ..._projections.safe_text import sanitize, sanitize_line
from ..actions.prompts import remove_attachments
from ..actions.session_store import describe_session, read_summaries_of_folder
from ..actions.user_store import open_store
from ..output.markdown import render_markdown
from ..output.scrollback import Scrollback
from ..output.text import format_seconds, format_tokens, truncate
from ..output.tree_lines import describe_outcome
from .conversation import Conversation
from .ui import QuestionUI

# Earlier prompts of a resumed conversation that are listed.
MAX_PROMPTS = 5
# Lines at the end of the last answer that are shown.
MAX_ANSWER_LINES = 40
# Characters of the work that is open when the user leaves.
MAX_OPEN_TITLES = 300
# Sessions in the list that the user searches.
MAX_SESSIONS = 200


async def choose_session(ui: QuestionUI, home: str, cwd: str, *, without: str = "") -> str:
    """Let the user search a folder's sessions; return the id of one, "" for none.

    Arguments:
        without: id of a session to leave out.
    """
    store = open_store(home)
    summaries = await read_summaries_of_folder(store, cwd, without=without, limit=MAX_SESSIONS)
    items = [(item.id, describe_session(item)) for item in summaries if item.prompts]
    if not items:
        ui.scrollback.write_lines([("No other session of this folder is recorded.", "")])
        return ""
    title = "Continue which session? Type words of its title or date to search."
    return await ui.choose(title, items, is_searchable=True) or ""


async def read_tree(home: str, session_id: str) -> RunTree:
    return RunTree.from_events(await read_events(open_store(home), session_id))


def print_recap(scrollback: Scrollback, tree: RunTree, session_id: str) -> None:
    """Print the last prompts of a resumed session, and the end of its last answer."""
    runs = tree.list_conversation()
    columns = scrollback.columns()
    if len(runs) > MAX_PROMPTS:
        scrollback.write_text(f"{len(runs) - MAX_PROMPTS} earlier prompts", "dim")
    for run in runs[-MAX_PROMPTS:]:
        title = sanitize_line(remove_attachments(run.title))
        scrollback.write_text(truncate(f"> {title}", columns - 1), "bold")
        if run is runs[-1]:
            _print_answer(scrollback, run, session_id)
        outcome = (
            describe_outcome(run)
            or (run.is_interrupted and "interrupted; your next prompt continues it")
            or "interrupted; this run is finished before your next prompt"
        )
        if run is not runs[-1] or not (run.report and run.report.ok):
            scrollback.write_text(f"  {outcome}", "dim")


def _print_answer(scrollback: Scrollback, run: RunView, session_id: str) -> None:
    text = run.report.text if run.report else ""
    lines = render_markdown(text, columns=scrollback.columns(), color=scrollback.color).splitlines(
        keepends=True
    )
    if len(lines) > MAX_ANSWER_LINES:
        scrollback.write_text(
            f"{len(lines) - MAX_ANSWER_LINES} earlier lines of the answer: mudroom show "
            f"{session_id[:8]} --run {run.run_id}",
            "dim",
        )
    scrollback.write("\n" + "".join(lines[-MAX_ANSWER_LINES:]) if text else "")


async def print_exit_line(conversation: Conversation) -> None:
    """Print how to resume the session, and its costs; nothing for a session without prompts."""
    tree = conversation.tree
    if not tree.roots:
        return  # Nothing is stored.
    header = await open_store(conversation.settings.home).read_header(conversation.session.id)
    figures = list_amounts(tree.roots, conversation.status.usd)
    if work := conversation.background_work:
        titles = "; ".join(f"{each.id} {each.title}" for each in work)
        text = f"Open: {truncate(titles, MAX_OPEN_TITLES)}. Children continue when you resume the "
        conversation.print_text(f"{text}session; commands are stopped.", "yellow")
    conversation.print_text(f"This session used {', '.join(figures)}.", "dim")
    name = sanitize(header.name)
    target = shlex.quote(name) if name else conversation.session.id[:8]
    # On a line of its own, to be copied.
    conversation.ui.scrollback.write_lines([(f"mudroom --resume {target}", "bold")])


def list_amounts(roots: Sequence[RunView], usd: float | None) -> list[str]:
    """Return what a session spent: tokens, costs and time. Unknown costs are left out.

    Arguments:
        usd: costs of the root runs that have ended, None if a price is not known. The costs of a
            run without an end are not known.
    """
    spent = [root for root in roots if root.total_usage.total_tokens]
    seconds = sum(root.count_seconds(root.last_event_at) for root in roots)
    figures = [f"{format_tokens(sum(root.total_usage.total_tokens for root in spent))} tokens"]
    if usd is not None and all(root.report for root in spent):
        figures.append(f"${usd:.2f}")
    return [*figures, format_seconds(seconds)]
