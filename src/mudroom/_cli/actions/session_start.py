"""Start options from the command line: a new, resumed or forked session."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from ..._core.events import RunStarted, StoredEvent
from ..._projections.safe_text import sanitize_line
from ..._session.config import Settings

# Characters of a prompt that say which session continues.
MAX_TITLE = 50


class SessionStart(Struct, frozen=True, kw_only=True):
    """The choice of a session to start with.

    Arguments:
        resume: id of the session to resume, "" for a new one. fork: resume it as a new session.
        folder: the resumed session's folder.
        id: id of the new session, "" for any. name: name to give to the session, "" for none.
        asks: the user chooses the session to resume at the prompt.
        source: of a new session, for its hooks: "startup", or "clear" after another one.
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
    """Describe which session a command line continues in one line: its id and first prompt.

    Arguments:
        events: the session's recorded events.
    """
    prompts = (event.brief.prompt for event in events if isinstance(event, RunStarted))
    title = sanitize_line(next(prompts, "").strip().partition("\n\n")[0], MAX_TITLE)
    what = f"a copy of {start.resume[:8]}" if start.fork else start.resume[:8]
    return f"continuing {what} ({title})" if title else f"continuing {what}"


class StartOptions(Struct, frozen=True, kw_only=True):
    """Options of a command line for a session.

    Arguments:
        cwd: the session's folder. start: the session to start with.
        verbose: a line on stderr for each tool call if there is no live tree.
        quiet: only errors on stderr.
    """

    settings: Settings
    cwd: str
    start: SessionStart = NEW_SESSION
    verbose: bool = False
    quiet: bool = False
