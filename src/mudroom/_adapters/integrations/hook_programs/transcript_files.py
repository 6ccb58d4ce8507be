"""A session's transcripts for hooks, brought up to date whenever a hook runs."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from ...._core.events import AnyEvent, Delta, StoredEvent
from ...._core.ports import Journal
from ...._platform.private_files import make_private_folder
from ...._projections.claude import ClaudeTranscripts


class TranscriptFiles:
    """The transcript files of a session.

    Arguments:
        folder: folder for the session's files, which are removed with it.
        journal: the session's journal.
    """

    def __init__(self, session: str, folder: str, journal: Journal) -> None:
        self._fold = ClaudeTranscripts(session)
        self._folder = Path(folder, "transcripts")
        self._journal = journal
        self._new: list[StoredEvent] = []
        self._written: set[str] = set()

    def observe(self, event: AnyEvent) -> None:
        """Keep an event until the next hook runs: many events pass without one."""
        if not isinstance(event, Delta):
            self._new.append(event)

    async def load(self) -> None:
        """Start with the events of earlier processes."""
        self._new[:0] = [event async for event in self._journal.read(0)]

    def write(self, run_id: str) -> tuple[str, str]:
        """Write what is new; return the paths of the conversation's and the run's transcripts."""
        for event in self._new:
            self._fold.apply(event)
        self._new.clear()
        for name, lines in self._fold.files.items():
            # A transcript that cannot be written must not stop a run.
            with suppress(OSError):
                self._append(name, "".join(lines))
        self._fold.files.clear()
        return self._locate(""), self._locate(run_id)

    def _locate(self, run_id: str) -> str:
        return str(self._folder / self._fold.make_path(run_id))

    def _append(self, name: str, text: str) -> None:
        path = self._folder / name
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
        if name not in self._written:
            make_private_folder(path.parent)
            flags |= os.O_TRUNC
            self._written.add(name)
        else:
            flags |= os.O_APPEND
        with open(os.open(path, flags, 0o600), "wb") as file:
            file.write(text.encode("utf-8", "replace"))
