"""Exports one session, secrets removed: HTML, Markdown, transcripts, a test fixture, or spans."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from ..._adapters.journals.sessions import read_events
from ..._adapters.output_filters import Redactor
from ..._core.events import SessionOpened, StoredEvent, decode_event, encode_event
from ..._core.json_values import map_texts
from ..._core.listings import count_noun
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
from ..._platform.private_files import make_private_folder, write_private_file
from ..._projections.run_tree import RunTree
from ..._projections.run_view import RunView
from ..._projections.safe_text import escape_json, sanitize, sanitize_line
from ..._projections.transcript import build_transcript
from ..._viewer.export import render_single_file
from ..._viewer.sources import EventPage, SessionSource, StoredSessions
from ..._viewer.work import WorkPage, WorkQuery
from ...errors import UsageError
from ..output.progress import print_notice
from ..output.transcript_lines import TextStyle, render_transcripts, render_tree
from ..output.tree_lines import describe_outcome, format_figures
from .load_settings import load_settings
from .session_store import choose_session, read_session
from .user_store import open_store

STDOUT = "-"


def export_session(
    name: str, export_format: str, target: str, *, html: str | None = None, store: str | None = None
) -> None:
    """Write a session to a file or a folder, or send its spans.

    `target` is a folder for "jsonl", else a file; STDOUT means the current folder or standard
    output. `html` is the target for the format "html", whatever the others are. Raises UnknownName,
    UsageError, JournalError.
    """
    if html is not None or export_format == "html":
        export_html(name, html or target, store=store)
        return
    if export_format == "otel":
        if target != STDOUT:
            remedy = "See mudroom help export."
            raise UsageError("--format otel sends the spans; it takes no -o", remedy=remedy)
        _export_traces(name, store=store)
        return
    home = load_settings(".", store=store).home
    session_id, stored = asyncio.run(read_session(home, name))
    events = list(redact_events(stored, Redactor(os.environ)))
    if export_format == "jsonl":
        folder = Path("." if target == STDOUT else target)
        paths = write_transcripts(session_id, events, folder)
        children = count_noun(sum(path.match("agent-*.jsonl") for path in paths), "child run")
        print_notice(f"{paths[0] if paths else folder}, and {children}")
        return
    if export_format == "md":
        text = sanitize("".join(render_session_markdown(events)))
    else:
        text = "".join(escape_json(encode_event(event).decode()) + "\n" for event in events)
    data = text.encode()
    if target == STDOUT:
        sys.stdout.buffer.write(data)
    else:
        check_target_file(target)
        write_private_file(Path(target), data)
        print_notice(f"{target} ({len(data):,} bytes)")


def _export_traces(name: str, *, store: str | None) -> None:
    """Send a session's spans, with the ids they had live.

    Raises UnknownName, JournalError, and UsageError if the spans cannot be sent.
    """
    from ..._adapters.integrations.tracing.session_tracing import require_packages
    from ..._adapters.integrations.tracing.variables import (
        explain_off,
        find_address,
        read_content_switch,
    )
    from ..._projections.spans import ContentCapture, SessionSpans

    require_packages()
    if reason := explain_off(os.environ):
        raise UsageError(f"traces cannot be sent: {reason}", remedy="Unset that variable.")
    home = load_settings(".", store=store).home
    session_id, events = asyncio.run(read_session(home, name))
    captures, notice = read_content_switch(os.environ)
    if notice:
        print_notice(notice)
    redact = Redactor(os.environ)
    capture = ContentCapture(redact) if captures else None
    spans = SessionSpans(session_id, capture=capture, redact=redact).apply_all(events)
    from ..._adapters.integrations.tracing.writers import send_spans

    if failure := send_spans(spans):
        raise UsageError(
            f"the traces were not delivered: {failure}",
            remedy="Start the server, or set OTEL_EXPORTER_OTLP_ENDPOINT.",
        )
    print_notice(f"{count_noun(len(spans), 'span')} sent to {find_address(os.environ)}")


def record_fixture(target: str, name: str, *, store: str | None) -> None:
    export_session(name, "fixture", target, store=store)


def check_target_file(target: str) -> None:
    """Raise UsageError if a file of this name cannot be created."""
    folder = Path(target).parent
    if target.endswith("/") or Path(target).is_dir():
        raise UsageError(f"{target} is a folder. Name a file in it, as in {Path(target, 'NAME')}.")
    if not folder.is_dir():
        remedy = f"Create it (mkdir -p {shlex.quote(str(folder))}), or name another file."
        raise UsageError(f"{target} cannot be written: {folder} is not a folder. {remedy}")


def write_transcripts(session_id: str, events: Iterable[StoredEvent], folder: Path) -> list[Path]:
    """Write a session's transcripts below a folder, readable only by the user; return the paths."""
    from ..._projections.claude import ClaudeTranscripts

    transcripts = ClaudeTranscripts(session_id)
    for event in events:
        transcripts.apply(event)
    paths: list[Path] = []
    for name, lines in transcripts.files.items():
        path = folder / name
        make_private_folder(path.parent)
        # Half a surrogate pair, which JSON allows in text, cannot be encoded.
        write_private_file(path, "".join(lines).encode("utf-8", "replace"))
        paths.append(path)
    return paths


def redact_events(
    events: Iterable[StoredEvent], redact: Callable[[str], str]
) -> Iterator[StoredEvent]:
    for event in events:
        yield msgspec.convert(redact_fields(event, redact), StoredEvent)


def redact_fields(value: object, redact: Callable[[str], str]) -> object:
    """Return a struct as dicts and lists, with `redact` applied to every text in it."""
    # Images stay bytes: as base64 text they could match a pattern of a secret.
    return map_texts(msgspec.to_builtins(value, builtin_types=(bytes,)), redact, keys=True)


def export_html(name: str, target: str, *, store: str | None) -> None:
    """Write one session as a page, secrets removed."""
    home = load_settings(".", store=store).home
    session_id = asyncio.run(choose_session(home, name or "last"))
    source = StoredSessions(open_store(home), home)
    pieces = render_single_file(_RedactedSource(source), session_id)
    if target == STDOUT:
        asyncio.run(_write(sys.stdout.buffer, pieces))
        return
    check_target_file(target)
    path = Path(target)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)  # private to the user
    with open(descriptor, "wb") as file:
        asyncio.run(_write(file, pieces))
    size = path.stat().st_size
    print_notice(f"{path} ({size:,} bytes) shows session {session_id[:8]}; it needs no server.")


async def render_session(home: str, session_id: str, suffix: str) -> AsyncIterator[str]:
    """Yield a session as text, secrets removed.

    With the suffix ".html" it is the viewer's page, with ".md" Markdown, else plain text.
    """
    if suffix == ".html":
        source = _RedactedSource(StoredSessions(open_store(home), home))
        async for piece in render_single_file(source, session_id):
            yield piece
        return
    stored = await read_events(open_store(home), session_id)
    events = list(redact_events(stored, Redactor(os.environ)))
    if suffix == ".md":
        yield "".join(render_session_markdown(events))
        return
    yield render_tree(events, TextStyle(columns=120))
    tree = RunTree.from_events(events)
    roots = [root.run_id for root in tree.roots]
    for transcript in render_transcripts(tree, events, roots, TextStyle(full=True)):
        yield f"\n{transcript}"


class _RedactedSource:
    """Removes secrets from a source's events, which leave this machine."""

    def __init__(self, source: SessionSource) -> None:
        self.list_sessions = source.list_sessions
        self.list_ids = source.list_ids
        self.read_change_stamp = source.read_change_stamp
        self._source = source
        self._redact = Redactor(os.environ)

    async def read_page(self, session: str, after: int) -> EventPage:
        page = await self._source.read_page(session, after)
        events = redact_events((decode_event(body) for _, body in page.events), self._redact)
        redacted = [
            (position, encode_event(event))
            for (position, _), event in zip(page.events, events, strict=True)
        ]
        return EventPage(redacted, page.has_more, page.error)

    async def read_work(self, session: str, query: WorkQuery) -> WorkPage:
        page = await self._source.read_work(session, query)
        return msgspec.convert(redact_fields(page, self._redact), WorkPage)


async def _write(file: BinaryIO, pieces: AsyncIterator[str]) -> None:
    async for piece in pieces:
        file.write(piece.encode("utf-8", "replace"))


# Markdown has six levels of headings.
_MAX_HEADING_LEVEL = 6


def render_session_markdown(events: Sequence[StoredEvent]) -> Iterator[str]:
    events_by_run: dict[str, list[StoredEvent]] = {}
    for event in events:
        events_by_run.setdefault(event.run, []).append(event)
    # A fork's record begins with that of its original: the last opening is its own.
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
    """Fence text with more backticks than any row of them inside."""
    longest = max((len(ticks) for ticks in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"\n{fence}{language}\n{sanitize(text).rstrip()}\n{fence}\n"
