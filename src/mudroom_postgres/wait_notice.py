"""Notices about a database that sessions wait for: one when they wait, one when they continue."""

from __future__ import annotations

import time
from collections.abc import Callable

# Shorter waits are not worth a notice.
NOTICE_SECONDS = 2.0

Tell = Callable[[str], object]


class WaitNotice:
    """The notice about one database, which sessions that wait together share.

    All methods are called in the background loop.

    Arguments:
        place: address of the database, without a password.
    """

    def __init__(self, place: str) -> None:
        self._place = place
        self._waiting: set[object] = set()
        self._began = 0.0

    def start(self, writer: object, cause: str, seconds: float, tell: Tell) -> None:
        """Report that a writer has been waiting for `NOTICE_SECONDS`.

        Arguments:
            cause: why it waits.
            seconds: how long it waits at most.
            tell: shows a notice.
        """
        if not self._waiting:
            self._began = time.monotonic() - NOTICE_SECONDS
            tell(
                f"waiting for the database ({self._place}): {cause}. mudroom tries again for "
                f"about {seconds:.0f} s; nothing is recorded meanwhile."
            )
        self._waiting.add(writer)

    def end(self, writer: object, tell: Tell, *, is_stored: bool) -> None:
        """Report that a writer has stopped waiting, if it was.

        Arguments:
            is_stored: false if it gave up, which its own error reports.
        """
        if writer not in self._waiting:
            return
        self._waiting.remove(writer)
        if is_stored and not self._waiting:
            seconds = time.monotonic() - self._began
            tell(f"the database answers again after {seconds:.0f} s ({self._place}). Work goes on.")
