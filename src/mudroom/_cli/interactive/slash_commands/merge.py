"""Slash command for the work of children in isolated workspaces."""

from __future__ import annotations

import asyncio

from ...._adapters.workspaces.isolated.kept_work import KeptWork, list_kept, read_difference
from ...._core.listings import count_noun
from ...._projections.run_view import describe_merge
from ...._projections.safe_text import sanitize, sanitize_line
from ....errors import UnknownName
from ...actions.workspaces import MergeResult, describe_conflicts, merge_kept
from ...output.text import Line, split_line
from ...output.tool_call_lines import DIFFERENCE_STYLES
from ..conversation import Conversation
from .files import MAX_LINES

# Files named per child in the list.
MAX_FILES = 5


async def merge(conversation: Conversation, which: str) -> None:
    """List work in isolated workspaces; show that of one run or name and offer to merge it."""
    home, session = conversation.settings.home, conversation.session.id
    kept = [each for each in await asyncio.to_thread(list_kept, home) if each.session == session]
    if not kept:
        conversation.print_text("No child of this session has had an isolated workspace.")
        return
    if not which:
        conversation.ui.scrollback.write_table(
            (sanitize_line(_get_label(conversation, each)), _describe(conversation, each))
            for each in kept
        )
        conversation.print_text("/merge RUN shows the changes of a child, and can merge them.")
        return
    work = _find(conversation, kept, which)
    await _print_difference(conversation, work)
    if work.state == "not merged" and work.files:
        await _offer_merge(conversation, work)


def _find(conversation: Conversation, kept: list[KeptWork], which: str) -> KeptWork:
    """Find the work of a run, or of the last run with a name. Raises UnknownName."""
    labels = {_get_label(conversation, work): work for work in kept}
    labels |= {work.run_id: work for work in kept}
    work = labels.get(which.removeprefix("@").lower())
    if work is None:
        raise UnknownName("child with an isolated workspace", which, list(labels))
    return work


def _get_label(conversation: Conversation, work: KeptWork) -> str:
    for mate in conversation.session.runs.teammates:
        if any(brief.run_id == work.run_id for brief in mate.briefs):
            return mate.name
    return work.run_id


def _describe(conversation: Conversation, work: KeptWork) -> str:
    names = ", ".join(sanitize_line(path) for path in work.files[:MAX_FILES])
    if len(work.files) > MAX_FILES:
        names += f" and {len(work.files) - MAX_FILES} more"
    state = _describe_state(conversation, work)
    run = conversation.tree.runs.get(work.run_id)
    title = f" ({sanitize_line(run.title)})" if run and run.title else ""
    return f"{state}: {names}{title}" if names else f"{state}{title}"


def _describe_state(conversation: Conversation, work: KeptWork) -> str:
    if work.state == "working":
        return "the child works"
    run = conversation.tree.runs.get(work.run_id)
    # The user can merge after a conflict; then the store knows, the run's events do not.
    if work.state == "merged" or run is None:
        return work.state
    return describe_merge(run) or work.state


async def _print_difference(conversation: Conversation, work: KeptWork) -> None:
    text = await asyncio.to_thread(read_difference, conversation.settings.home, work)
    lines = text.splitlines()
    rows: list[Line] = [
        [(f"  {sanitize(line)}", DIFFERENCE_STYLES.get(line[:1], "dim"))]
        for line in lines[:MAX_LINES]
    ]
    scrollback = conversation.ui.scrollback
    columns = scrollback.columns() - 1
    scrollback.write_lines(*(row for line in rows for row in split_line(line, columns)))
    if len(lines) > MAX_LINES:
        more = count_noun(len(lines) - MAX_LINES, "more line")
        conversation.print_text(f"{more}: mudroom workspaces show {work.id} prints all.", "yellow")
    conversation.print_text(f"{_get_label(conversation, work)}: {_describe(conversation, work)}")


async def _offer_merge(conversation: Conversation, work: KeptWork) -> None:
    # The run may be changing the same files.
    if conversation.is_busy:
        conversation.print_text("It can be merged when no run works.", "dim")
        return
    files = count_noun(len(work.files), "file")
    choice = await conversation.ui.choose(
        f"Merge {files} into yours?",
        [("yes", f"yes, merge {files}"), ("no", "no, keep the work for later")],
    )
    if choice == "yes":
        result = await asyncio.to_thread(merge_kept, conversation.settings.home, work)
        _print_result(conversation, result)


def _print_result(conversation: Conversation, result: MergeResult) -> None:
    if not result.conflicts:
        files = ", ".join(map(sanitize_line, result.files)) or "no file differs"
        conversation.print_text(f"Merged: {files}.")
        return
    conversation.print_text("Nothing was changed: these files conflict with yours.", "yellow")
    for line in describe_conflicts(result.conflicts):
        conversation.print_text(line)
    conversation.print_text("Change your files or ask the model to combine both, then try again.")
