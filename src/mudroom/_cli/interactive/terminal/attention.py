"""The terminal's title and notifications: mudroom at work, done, or asking."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping

from ...._projections.safe_text import sanitize_line

# XTWINOPS: the terminal saves its title on a stack and restores it.
_PUSH_TITLE = "\x1b[22;2t"
_POP_TITLE = "\x1b[23;2t"
_MAX_LENGTH = 80


def choose_channel(setting: str, environ: Mapping[str, str]) -> str:
    """Choose "bell", "osc9", "osc777" or "off" for the setting `notifications`."""
    if setting != "auto":
        return setting
    if environ.get("TMUX") or environ.get("STY"):
        return "bell"  # tmux and screen do not pass notifications on
    if environ.get("TERM_PROGRAM") in ("iTerm.app", "WezTerm", "ghostty"):
        return "osc9"
    if environ.get("TERM", "").startswith(("rxvt-unicode", "foot")):
        return "osc777"
    return "bell"


class Attention:
    """A terminal's title and notifications.

    The user is notified after `notify_after` seconds of work; before that, the user is still
    watching.
    """

    def __init__(
        self,
        write: Callable[[str], None],
        channel: str,
        *,
        notify_after: float,
        has_title: bool,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._write = write
        self._channel = channel
        self._notify_after = notify_after
        self._has_title = has_title
        self._now = now
        self._folder = ""
        self._since = now()
        if has_title:
            write(_PUSH_TITLE)

    def open(self, folder: str) -> None:
        self._folder = sanitize_line(os.path.basename(folder) or folder, _MAX_LENGTH)
        self._set_title("")

    def start_work(self) -> None:
        self._since = self._now()
        self._set_title("working")

    def ask(self, question: str) -> None:
        """Show that a question awaits an answer; after long work, notify the user."""
        self._set_title("question")
        self._notify(f"mudroom asks: {sanitize_line(question, _MAX_LENGTH)}")

    def finish_work(self) -> None:
        """Show that the run has ended; after long work, notify the user."""
        self._set_title("")
        self._notify(f"mudroom is done in {self._folder}")

    def close(self) -> None:
        if self._has_title:
            self._write(_POP_TITLE)

    def _set_title(self, state: str) -> None:
        if self._has_title:
            text = f"{self._folder} ({state})" if state else self._folder
            self._write(f"\x1b]2;mudroom: {text}\x07")

    def _notify(self, text: str) -> None:
        if self._now() - self._since < self._notify_after:
            return
        if self._channel == "bell":
            self._write("\x07")
        elif self._channel == "osc9":
            self._write(f"\x1b]9;{text}\x07")
        elif self._channel == "osc777":
            # Semicolons separate the fields of this sequence.
            self._write(f"\x1b]777;notify;mudroom;{text.replace(';', ',')}\x07")
