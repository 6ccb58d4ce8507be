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

from ..._core.events import SessionOpened, Stored
from ..._core.messages import Assistant, Call, Message, Result, Text
from ...journals.encoding import encode
from ...journals.sqlite.journal import read_only
from ...journals.sqlite.store import rewrite
from ...output_filters.redaction import Redactor
from ...projections.run_tree import RunView, Tree
from ...projections.transcript import transcript
from ..output.progress import say
from ..output.text import clean, one_line, plural
from ..output.tree_lines import figures, outcome
from .select_session import found

STDOUT = "-"


def export(home: str, name: str, form: str, target: str) -> int:
    """Write a session somewhere; the exit code.

    Arguments:
        name: an id, the beginning of one, a name, or "last" for the last one of this folder.
        form: "jsonl", "md" or "fixture". target: a folder for "jsonl", else a file; STDOUT is stdout.

    Raises UnknownName, JournalError.
    """
    record = read_only(found(home, ".", name))
    events = list(redacted(record.read(), Redactor(os.environ)))
    if form == "jsonl":
        from .export_claude_jsonl import write

        paths = write(record.meta.session, events, Path("." if target == STDOUT else target))
        children = sum(path.name.startswith("agent-") and path.suffix == ".jsonl" for path in paths)
        say(f"{paths[0] if paths else target}, and {plural(children, 'child run')}")
        return 0
    text = (
        "".join(markdown(events)).encode("utf-8", "replace")
        if form == "md"
        else b"".join(encode(event) + b"\n" for event in events)
    )
    if target == STDOUT:
        sys.stdout.buffer.write(text)
    else:
        rewrite(Path(target), text)
        say(f"{target} ({len(text):,} bytes)")
    return 0


def redacted(events: Iterable[Stored], redact: Callable[[str], str]) -> Iterator[Stored]:
    """The events with every text in them put through `redact`."""

    def through(value: Any) -> Any:
        if isinstance(value, str):
            return redact(value)
        if isinstance(value, dict):
            return {through(key): through(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
        return [through(item) for item in value] if isinstance(value, list | tuple) else value  # pyright: ignore[reportUnknownVariableType]

    for event in events:
        yield msgspec.convert(through(msgspec.to_builtins(event)), Stored)


def markdown(events: Sequence[Stored]) -> Iterator[str]:
    """The session as a page to read: every run, what it was told, what it did and said, its children below it."""
    tree = Tree()
    by_run: dict[str, list[Stored]] = {}
    for event in events:
        tree.apply(event)
        by_run.setdefault(event.run, []).append(event)
    opened = next((event for event in events if isinstance(event, SessionOpened)), None)
    if opened:
        yield f"# Session {opened.session}\n\nIn `{clean(opened.cwd)}`, with mudroom {opened.version}.\n"
    for run in tree.walk():
        yield from _run(run, transcript(by_run[run.run_id], run.run_id))


def _run(run: RunView, messages: Iterable[Message]) -> Iterator[str]:
    title = one_line(run.title, 80)
    yield f"\n{'#' * min(6, 2 + run.depth)} Run {run.run_id} · {one_line(run.agent)} · {title}\n\n"
    yield f"*{one_line(run.model)}: {clean(outcome(run)) or 'unfinished'} ({', '.join(figures(run, None))})*\n"
    for message in messages:
        yield "\n**Answer**\n" if isinstance(message, Assistant) else "\n**Told**\n"
        for block in message.content:
            if isinstance(block, Call):
                given = block.malformed or json.dumps(block.arguments, ensure_ascii=False, indent=1)
                yield f"\nCall of `{one_line(block.name)}`:\n{_fenced(given, 'json')}"
            elif isinstance(block, Result):
                yield f"\n{'Failed' if block.error else 'Result of'} `{one_line(block.name)}`:\n{_fenced(block.text)}"
            elif isinstance(block, Text):
                yield (
                    f"\n{clean(block.text)}\n"
                    if isinstance(message, Assistant)
                    else _fenced(block.text)
                )


def _fenced(text: str, kind: str = "") -> str:
    fence = "`" * max(3, 1 + max((len(ticks) for ticks in re.findall("`+", text)), default=0))
    return f"\n{fence}{kind}\n{clean(text).rstrip()}\n{fence}\n"
