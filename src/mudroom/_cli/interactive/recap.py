"""Resuming: the list of sessions, and the end of a resumed conversation, printed again."""

from __future__ import annotations

from msgspec.structs import replace

from ..._adapters.journals.sessions import stream_events
from ..._core.events import RunStarted, StoredEvent
from ..._core.runs import is_child_id
from ..._projections.run_tree import RunTree
from ..._projections.run_view import RunView
from ..._projections.safe_text import sanitize_line
from ..actions.prompts import remove_attachments
from ..actions.session_store import describe_session, read_summaries_of_folder
from ..actions.user_store import open_store
from ..output.scrollback import Scrollback
from ..output.text import truncate
from ..output.tree_lines import describe_outcome
from .scrollback_writer import ScrollbackWriter
from .ui import QuestionUI

# Earlier prompts of a resumed conversation to print again.
MAX_PROMPTS = 5
# Lines to print from the end of each.
MAX_LINES = 40
# Root runs whose events are kept meanwhile: some may have been removed from the conversation.
MAX_KEPT_RUNS = 20
# Sessions in the searchable list.
MAX_SESSIONS = 200


async def choose_session(ui: QuestionUI, home: str, cwd: str, *, without: str = "") -> str:
    """Let the user search a folder's sessions; return the chosen id, "" for none."""
    store = open_store(home)
    summaries = await read_summaries_of_folder(store, cwd, without=without, limit=MAX_SESSIONS)
    items = [(item.id, describe_session(item)) for item in summaries if item.prompts]
    if not items:
        ui.scrollback.write_lines([("No other session of this folder is recorded.", "")])
        return ""
    title = "Continue which session? Type words of its title or date to search."
    return await ui.choose(title, items, is_searchable=True) or ""


class Recap:
    """Keeps the end of a recorded conversation to print it again.

    The tree applies each event first.
    """

    def __init__(self, tree: RunTree) -> None:
        self._tree = tree
        self._events: dict[str, list[StoredEvent]] = {}

    def apply(self, event: StoredEvent) -> None:
        if isinstance(event, RunStarted) and not is_child_id(event.run):
            self._events[event.run] = []
            for run in list(self._events)[:-MAX_KEPT_RUNS]:
                del self._events[run]
        if event.run in self._events:
            self._events[event.run].append(event)

    def print(self, scrollback: Scrollback, session_id: str) -> None:
        runs = self._tree.list_conversation()
        if len(runs) > MAX_PROMPTS:
            scrollback.write_text(f"{len(runs) - MAX_PROMPTS} earlier prompts", "dim")
        for run in runs[-MAX_PROMPTS:]:
            self._print_run(scrollback, run, session_id)

    def _print_run(self, scrollback: Scrollback, run: RunView, session_id: str) -> None:
        events = self._events.get(run.run_id, ())
        first = next((event for event in events if isinstance(event, RunStarted)), None)
        is_compaction = first is not None and first.brief.is_compaction
        if not is_compaction:
            title = sanitize_line(remove_attachments(run.title))
            title = truncate(f"> {title}", scrollback.columns() - 1)
            scrollback.write_text(title, "bold")
        written: list[str] = []
        writer = ScrollbackWriter(replace(scrollback, write=written.append), self._tree)
        for event in events:
            if is_compaction or event is not first:
                writer.apply(event)
        lines = "".join(written).splitlines(keepends=True)
        if len(lines) > MAX_LINES:
            scrollback.write_text(
                f"{len(lines) - MAX_LINES} earlier lines: mudroom show {session_id[:8]} --run "
                f"{run.run_id}",
                "dim",
            )
        scrollback.write("".join(lines[-MAX_LINES:]))
        if not (run.report and run.report.ok):
            outcome = (
                describe_outcome(run)
                or (run.is_interrupted and "interrupted; your next prompt continues it")
                or "interrupted; this run is finished before your next prompt"
            )
            scrollback.write_text(f"  {outcome}", "dim")


async def read_recap(home: str, session_id: str) -> Recap:
    tree = RunTree()
    recap = Recap(tree)
    async for event in stream_events(open_store(home), session_id):
        tree.apply(event)
        recap.apply(event)
    return recap
