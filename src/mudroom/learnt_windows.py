"""Context windows that refusals taught, kept in mudroom's state folder for later sessions."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from ._core.counts import count_noun
from ._core.json_values import get_decoder
from ._platform.private_files import make_private_folder, replace_private_file

FILE_NAME = "learnt-windows.json"
MAX_AGE_DAYS = 30
"""Days after which a window is forgotten: the server may accept more by then."""
_SECONDS_PER_DAY = 86_400


class LearntWindow(Struct, frozen=True):
    """A window that a refusal taught.

    Arguments:
        tokens: the window.
        at: seconds since 1970.
    """

    tokens: int
    at: float


class LearntWindows:
    """Windows by model string and base URL, in a file that several processes may share.

    Arguments:
        home: mudroom's state folder; "" keeps nothing.
        now: returns seconds since 1970.
    """

    def __init__(self, home: str, now: Callable[[], float] = time.time) -> None:
        self.path = Path(home, FILE_NAME)
        self._is_kept = bool(home)
        self._now = now
        self._windows: dict[str, LearntWindow] | None = None

    def find(self, model: str, base_url: str) -> int:
        """Return the window in tokens, 0 if none was learnt lately. The file is read once."""
        if self._windows is None:
            self._windows = self.read()
        window = self._windows.get(_make_key(model, base_url))
        return window.tokens if window else 0

    def add(self, model: str, base_url: str, tokens: int) -> None:
        """Keep a window. A folder that cannot be written keeps nothing."""
        if not self._is_kept:
            return
        with suppress(OSError):
            make_private_folder(self.path.parent)
            with self._lock():
                windows = self.read()
                windows[_make_key(model, base_url)] = LearntWindow(tokens, self._now())
                replace_private_file(self.path, msgspec.json.encode(windows))
                self._windows = windows

    def read(self) -> dict[str, LearntWindow]:
        """Return the windows of the file that are not too old. A damaged file has none."""
        if not self._is_kept:
            return {}
        try:
            windows = get_decoder(dict[str, LearntWindow]).decode(self.path.read_bytes())
        except (OSError, msgspec.DecodeError):
            return {}
        oldest = self._now() - MAX_AGE_DAYS * _SECONDS_PER_DAY
        return {key: window for key, window in windows.items() if window.at >= oldest}

    def describe(self) -> str:
        """Return the windows and their age in one line, "" if there are none."""
        rows = [
            f"{key} {window.tokens:,} tokens, learnt {self._format_age(window.at)}"
            for key, window in self.read().items()
        ]
        return "; ".join(rows)

    def _format_age(self, at: float) -> str:
        days = int((self._now() - at) // _SECONDS_PER_DAY)
        return f"{count_noun(days, 'day')} ago" if days > 0 else "today"

    @contextmanager
    def _lock(self) -> Generator[None]:
        """Let one process at a time change the file."""
        with open(self.path.with_suffix(".lock"), "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _make_key(model: str, base_url: str) -> str:
    """Return the key of a model at a host, without credentials."""
    return f"{model} at {base_url.partition('://')[2].rpartition('@')[2]}"
