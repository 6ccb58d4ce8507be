"""A recorded session in a form for elsewhere: transcripts, Markdown, a fixture for tests. Secrets are taken out."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ..._core.events import SessionOpened, StoredEvent
from ..._core.messages import AssistantMessage, Message, TextBlock, ToolCallBlock, ToolResultBlock
from ...journals.encoding import encode
from ...journals.sqlite.private_files import write_private_file
from ...journals.sqlite.reader import open_reader
from ...output_filters.redaction import Redactor
from ...projections.run_tree import RunTree, RunView
from ...projections.safe_text import sanitize, sanitize_line
from ...projections.transcript import build_transcript
from ..output.progress import print_notice
from ..output.text import count_noun
from ..output.tree_lines import describe_outcome, format_figures
from .select_session import find_session

STDOUT = "-"


def export_session(home: str, name: str, form: str, target: str) -> int:
    """Write a session somewhere; the exit code.

    Arguments:
        name: an id, the beginning of one, a name, or "last" for the last one of this folder.
        form: "jsonl", "md" or "fixture". target: a folder for "jsonl", else a file; STDOUT is stdout.

    Raises UnknownName, JournalError.
    """
    record = open_reader(find_session(home, ".", name))
    events = list(redact_events(record.read(), Redactor(os.environ)))
    if form == "jsonl":
        from .export_claude_jsonl import write_transcripts

        paths = write_transcripts(
            record.meta.session, events, Path("." if target == STDOUT else target)
        )
        children = sum(path.name.startswith("agent-") and path.suffix == ".jsonl" for path in paths)
        print_notice(f"{paths[0] if paths else target}, and {count_noun(children, 'child run')}")
        return 0
    text = (
        "".join(render_markdown(events)).encode("utf-8", "replace")
        if form == "md"
        else b"".join(encode(event) + b"\n" for event in events)
    )
    if target == STDOUT:
        sys.stdout.buffer.write(text)
    else:
        write_private_file(Path(target), text)
        print_notice(f"{target} ({len(text):,} bytes)")
    return 0


def redact_events(
    events: Iterable[StoredEvent], redact: Callable[[str], str]
) -> Iterator[StoredEvent]:
    """The events with every text in them put through `redact`."""

    def through(value: Any) -> Any:
        if isinstance(value, str):
            return redact(value)
        if isinstance(value, dict):
            return {through(key): through(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
        return [through(item) for item in value] if isinstance(value, list | tuple) else value  # pyright: ignore[reportUnknownVariableType]

    for event in events:
        yield msgspec.convert(through(msgspec.to_builtins(event)), StoredEvent)


def render_markdown(events: Sequence[StoredEvent]) -> Iterator[str]:
    """The session as a page to read: every run, what it was told, what it did and said, its children below it."""
    tree = RunTree()
    by_run: dict[str, list[StoredEvent]] = {}
    for event in events:
        tree.apply(event)
        by_run.setdefault(event.run, []).append(event)
    opened = next((event for event in events if isinstance(event, SessionOpened)), None)
    if opened:
        yield f"# Session {opened.session}\n\nIn `{sanitize(opened.cwd)}`, with mudroom {opened.version}.\n"
    for run in tree.walk():
        yield from _run(run, build_transcript(by_run[run.run_id], run.run_id))


def _run(run: RunView, messages: Iterable[Message]) -> Iterator[str]:
    title = sanitize_line(run.title, 80)
    yield f"\n{'#' * min(6, 2 + run.depth)} Run {run.run_id} · {sanitize_line(run.agent)} · {title}\n\n"
    yield f"*{sanitize_line(run.model)}: {sanitize(describe_outcome(run)) or 'unfinished'} ({', '.join(format_figures(run, None))})*\n"
    for message in messages:
        yield "\n**Answer**\n" if isinstance(message, AssistantMessage) else "\n**Told**\n"
        for block in message.content:
            if isinstance(block, ToolCallBlock):
                given = block.malformed or json.dumps(block.arguments, ensure_ascii=False, indent=1)
                yield f"\nCall of `{sanitize_line(block.name)}`:\n{_fenced(given, 'json')}"
            elif isinstance(block, ToolResultBlock):
                yield f"\n{'Failed' if block.error else 'Result of'} `{sanitize_line(block.name)}`:\n{_fenced(block.text)}"
            elif isinstance(block, TextBlock):
                yield (
                    f"\n{sanitize(block.text)}\n"
                    if isinstance(message, AssistantMessage)
                    else _fenced(block.text)
                )


def _fenced(text: str, kind: str = "") -> str:
    fence = "`" * max(3, 1 + max((len(ticks) for ticks in re.findall("`+", text)), default=0))
    return f"\n{fence}{kind}\n{sanitize(text).rstrip()}\n{fence}\n"
