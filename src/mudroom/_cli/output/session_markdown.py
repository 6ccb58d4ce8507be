"""A recorded session as a page in Markdown."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence

from ..._core.events import SessionOpened, StoredEvent
from ..._core.messages import (
    AssistantMessage,
    ImageBlock,
    Message,
    ProviderBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    append_placeholders,
    join_texts,
)
from ..._projections.run_tree import RunTree
from ..._projections.run_view import RunView
from ..._projections.safe_text import sanitize, sanitize_line
from ..._projections.transcript import build_transcript
from .tree_lines import describe_outcome, format_figures

# Markdown has six levels of headings.
_MAX_HEADING_LEVEL = 6


def render_session_markdown(events: Sequence[StoredEvent]) -> Iterator[str]:
    """Yield the page: each run with its messages, its child runs below it."""
    events_by_run: dict[str, list[StoredEvent]] = {}
    for event in events:
        events_by_run.setdefault(event.run, []).append(event)
    # The record of a fork begins with that of its original: the last opening is its own.
    openings = [event for event in events if isinstance(event, SessionOpened)]
    if openings:
        opened = openings[-1]
        place = f"In `{sanitize(opened.cwd)}`, with mudroom {opened.version}."
        yield f"# Session {opened.session}\n\n{place}\n"
    for run in RunTree.from_events(events).walk():
        yield from _render_run(run, build_transcript(events_by_run[run.run_id], run.run_id))


def _render_run(run: RunView, messages: Iterable[Message]) -> Iterator[str]:
    level = min(_MAX_HEADING_LEVEL, 2 + run.depth)
    title = sanitize_line(run.title, 80)
    outcome = sanitize(describe_outcome(run)) or "unfinished"
    yield f"\n{'#' * level} Run {run.run_id} · {run.short_label} · {title}\n\n"
    yield f"*{sanitize_line(run.model)}: {outcome} ({', '.join(format_figures(run, None))})*\n"
    for message in messages:
        yield from _render_message(message)


def _render_message(message: Message) -> Iterator[str]:
    is_answer = isinstance(message, AssistantMessage)
    yield "\n**Answer**\n" if is_answer else "\n**Input**\n"
    for block in join_texts(message.content):
        if isinstance(block, ToolCallBlock):
            arguments = block.malformed or json.dumps(block.arguments, ensure_ascii=False, indent=1)
            yield f"\nCall of `{sanitize_line(block.name)}`:\n{_make_code_block(arguments, 'json')}"
        elif isinstance(block, ToolResultBlock):
            label = "Failed" if block.error else "Result of"
            text = _make_code_block(append_placeholders(block.text, block.images))
            yield f"\n{label} `{sanitize_line(block.name)}`:\n{text}"
        elif isinstance(block, ImageBlock):
            yield f"\n{block.placeholder}\n"
        elif isinstance(block, ProviderBlock):
            yield _make_code_block(block.text)
        elif isinstance(block, TextBlock):
            yield f"\n{sanitize(block.text)}\n" if is_answer else _make_code_block(block.text)


def _make_code_block(text: str, language: str = "") -> str:
    """Return the text as a code block with a fence longer than any row of backticks in it."""
    longest = max((len(ticks) for ticks in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"\n{fence}{language}\n{sanitize(text).rstrip()}\n{fence}\n"
