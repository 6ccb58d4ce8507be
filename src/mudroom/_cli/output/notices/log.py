"""Shows warnings from mudroom's log as notices on the screen."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager


class _NoticeHandler(logging.Handler):
    def __init__(self, show: Callable[[str], object]) -> None:
        super().__init__(logging.WARNING)
        self._show = show

    def emit(self, record: logging.LogRecord) -> None:
        self._show(record.getMessage())


@contextmanager
def show_log(show: Callable[[str], object]) -> Generator[None]:
    """Show the log's warnings with a function, instead of on stderr inside a drawn screen."""
    log = logging.getLogger("mudroom")
    handler = _NoticeHandler(show)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
