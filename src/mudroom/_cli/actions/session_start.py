"""Start options from the command line: a new, resumed or forked session."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from ..._core.events import RunStarted, StoredEvent
from ..._projections.safe_text import sanitize_line
from ..._session.config import Settings

# Characters of a prompt shown to identify the session that continues.
MAX_TITLE = 50


class SessionStart(Struct, frozen=True, kw_only=True):
    """The choice of the session to start with.

    `resume` is "" for a new session, `id` is "" for any id. With `fork`, the resumed session
    becomes a new one; with `asks`, the user chooses at the prompt. `source` is for hooks:
    "startup", or "clear" after another session.
    """

    resume: str = ""
    fork: bool = False
    folder: str = ""
    id: str = ""
    name: str = ""
    asks: bool = False
    source: str = "startup"


NEW_SESSION = SessionStart()


def describe_continued(start: SessionStart, events: Iterable[StoredEvent]) -> str:
    """Describe in one line the session being continued: its id and first prompt."""
    prompts = (event.brief.prompt for event in events if isinstance(event, RunStarted))
    title = sanitize_line(next(prompts, "").strip().partition("\n\n")[0], MAX_TITLE)
    what = f"a copy of {start.resume[:8]}" if start.fork else start.resume[:8]
    return f"continuing {what} ({title})" if title else f"continuing {what}"


class StartOptions(Struct, frozen=True, kw_only=True):
    settings: Settings
    cwd: str
    start: SessionStart = NEW_SESSION
    verbose: bool = False
    quiet: bool = False
