"""`mudroom export`: a session as transcripts, Markdown or test fixture, secrets removed."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import cast

import msgspec

from ...._adapters.output_filters import Redactor
from ...._core.events import StoredEvent, encode_event
from ...._core.listings import count_noun
from ...._platform.private_files import make_private_folder, write_private_file
from ...._projections.safe_text import escape_json, sanitize
from ....errors import UsageError
from ...output.progress import print_notice
from ...output.session_markdown import render_session_markdown
from ..load_settings import load_settings
from ..session_store import read_session

STDOUT = "-"


def export_session(name: str, export_format: str, target: str, *, store: str | None = None) -> int:
    """Write a session to a file or a folder.

    Arguments:
        name: id, beginning of an id, name, or "last" for the last session of this folder.
        export_format: "jsonl", "md" or "fixture".
        target: a folder for "jsonl", else a file; STDOUT is the current folder or standard output.
        store: address of the database with the session, None for the settings' store.

    Raises UnknownName, UsageError, JournalError.
    """
    home = load_settings(".", store=store).home
    session_id, stored = asyncio.run(read_session(home, name))
    events = list(redact_events(stored, Redactor(os.environ)))
    if export_format == "jsonl":
        _write_transcripts(session_id, events, "." if target == STDOUT else target)
        return 0
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
    return 0


def check_target_file(target: str) -> None:
    """Raise UsageError if no file can be created with this name."""
    folder = Path(target).parent
    if target.endswith("/") or Path(target).is_dir():
        raise UsageError(f"{target} is a folder. Name a file in it, as in {Path(target, 'NAME')}.")
    if not folder.is_dir():
        remedy = f"Create it (mkdir -p {shlex.quote(str(folder))}), or name another file."
        raise UsageError(f"{target} cannot be written: {folder} is not a folder. {remedy}")


def _write_transcripts(session_id: str, events: Iterable[StoredEvent], folder: str) -> None:
    paths = write_transcripts(session_id, events, Path(folder))
    children = [path for path in paths if path.match("agent-*.jsonl")]
    print_notice(f"{paths[0] if paths else folder}, and {count_noun(len(children), 'child run')}")


def write_transcripts(session_id: str, events: Iterable[StoredEvent], folder: Path) -> list[Path]:
    """Write a session's transcripts below a folder, readable only by the user; return the paths."""
    from ...._projections.claude import ClaudeTranscripts

    transcripts = ClaudeTranscripts(session_id)
    for event in events:
        transcripts.apply(event)
    paths: list[Path] = []
    for name, lines in transcripts.files.items():
        path = folder / name
        make_private_folder(path.parent)
        # Half of a surrogate pair, which JSON allows in a text, cannot be encoded.
        write_private_file(path, "".join(lines).encode("utf-8", "replace"))
        paths.append(path)
    return paths


def redact_events(
    events: Iterable[StoredEvent], redact: Callable[[str], str]
) -> Iterator[StoredEvent]:
    """Apply `redact` to every text in the events."""
    for event in events:
        yield msgspec.convert(redact_fields(event, redact), StoredEvent)


def redact_fields(value: object, redact: Callable[[str], str]) -> object:
    """Return a struct as dicts and lists, with `redact` applied to every text in it."""

    def redact_value(value: object) -> object:
        if isinstance(value, str):
            return redact(value)
        if isinstance(value, dict):
            items = cast("dict[object, object]", value).items()
            return {redact_value(key): redact_value(item) for key, item in items}
        if isinstance(value, list | tuple):
            return [redact_value(item) for item in cast("Sequence[object]", value)]
        return value

    # Images stay bytes: as base64 text they could match a pattern of a secret.
    fields = msgspec.to_builtins(value, builtin_types=(bytes,))
    return redact_value(fields)
