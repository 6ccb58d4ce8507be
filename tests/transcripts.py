"""The transcript of one run as text, as `mudroom show` prints it."""

from __future__ import annotations

from collections.abc import Sequence

from mudroom._cli.output.transcript_lines import TextStyle, render_transcripts
from mudroom._projections.run_tree import RunTree
from mudroom.events import StoredEvent

PLAIN = TextStyle()


def render_transcript(events: Sequence[StoredEvent], run_id: str, style: TextStyle = PLAIN) -> str:
    return next(render_transcripts(RunTree.from_events(events), events, [run_id], style))
