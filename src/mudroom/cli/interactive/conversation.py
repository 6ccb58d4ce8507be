"""A conversation at a prompt: what is typed becomes a command, a shell line or a prompt; what happens is folded for every screen."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    contextmanager,
)
from typing import Protocol

from msgspec import Struct

from ..._core.agents import Report
from ..._core.events import AnyEvent, RunFinished, StoredEvent
from ..._engine.compaction import has_summary
from ...config import Settings
from ...errors import JournalError, MudroomError, suggest_names
from ...journals.sqlite.store import session_path
from ...projections.ledger import LedgerBuilder, describe_ledger
from ...projections.run_tree import RunTree
from ...projections.safe_text import sanitize
from ...session import Session
from ..output.report import explain_failure
from ..output.scrollback import Scrollback
from ..output.text import Line, wrap
from .mentions import MentionOffers, expand_mentions
from .scrollback_writer import ScrollbackWriter
from .shell_escape import ShellEscape
from .status_line import StatusLine

EXIT_WORDS = ("q", "exit", "quit")


class NextStep(Struct, frozen=True, kw_only=True):
    """What comes after a session: leaving with a code, or another session.

    Arguments:
        code: exit code; None goes on. resume: id of the session to go on with, "" for a new one.
        model, mode: model string and permission mode for it, "" as before.
    """

    exit_code: int | None = None
    resume: str = ""
    model: str = ""
    mode: str = ""


class UI(AbstractAsyncContextManager["UI"], Protocol):
    """Where a conversation is shown and typed: a drawn prompt (desk.py) or plain lines (lines.py). A block opens it."""

    @property
    def exit_code(self) -> int:
        """The exit code it was closed with."""
        ...

    @property
    def scrollback(self) -> Scrollback:
        """What stays on the screen."""
        ...

    @property
    def prints_child_lines(self) -> bool:
        """Whether children are told of in lines of their own, so that the writer need not."""
        ...

    def attach(self, talk: Conversation) -> None:
        """Show this conversation from now on."""
        ...

    def apply(self, event: AnyEvent) -> None:
        """Take in an event, after the conversation has."""
        ...

    async def read_line(self) -> str:
        """The next line typed. Raises EOFError when there will be none."""
        ...

    def add_early_input(self, early: str) -> None:
        """Take in what was typed before it was there."""
        ...

    def prefill(self, text: str) -> None:
        """Put words where the next line is typed."""
        ...

    async def choose(
        self, title: str, items: Sequence[tuple[str, str]], *, free_text: bool = False
    ) -> str | None:
        """Ask which of (value, label) it shall be; None for none. `words`: what is typed instead is an answer too."""
        ...

    def during_run(self) -> AbstractContextManager[object]:
        """A block around a run."""
        ...


SlashCommand = Callable[["Conversation", str], Awaitable[NextStep | None]]
"""What a word that begins with / does: (conversation, the words after it) -> what comes after the session, if that is over."""


class Conversation:
    """One session and the person in front of it.

    Arguments:
        opened: the session; it may be opened later. face: where it is shown. commands: by name, the slash included.

    `stack` is entered by who opens the session: what is put on it ends with the conversation.
    """

    def __init__(
        self, opened: Session, ui: UI, settings: Settings, commands: Mapping[str, SlashCommand]
    ) -> None:
        self.session, self.face, self.settings, self.commands = opened, ui, settings, commands
        self.tree, self.tally, self.status = RunTree(), LedgerBuilder(), StatusLine()
        self.writer = ScrollbackWriter(
            ui.scrollback, self.tree, show_tasks=not ui.prints_child_lines
        )
        self.mention_offers = MentionOffers(self._paths, self._agents)
        self.is_busy, self.last_answer = False, ""
        self._asides: list[str] = []
        self._shell: asyncio.Task[str] | None = None
        self.resources = AsyncExitStack()
        opened.watch(self._apply)

    def _apply(self, event: AnyEvent) -> None:
        for fold in (self.tree, self.tally, self.status, self.writer, self.face):
            fold.apply(event)
        self._heed(event)

    def _heed(self, event: AnyEvent) -> None:
        if isinstance(event, RunFinished) and "." not in event.run:
            self.last_answer = event.report.text

    def _paths(self) -> Iterable[str]:
        return (file.path for file in self.session.workspace.walk())

    def _agents(self) -> list[str]:
        return [agent.name for agent in self.session.agents]

    def read_events(self) -> Iterable[StoredEvent]:
        """All that is recorded of the session."""
        from ...journals.sqlite.reader import open_reader

        return open_reader(session_path(self.settings.home, self.session.id)).read()

    def load_history(self) -> None:
        """Fold what is recorded of a session that goes on."""
        for event in self.read_events():
            for fold in (self.tree, self.tally, self.status):
                fold.apply(event)
            self._heed(event)

    async def run_until_done(self, first: str = "") -> NextStep:
        """Obey line after line; what comes after this session. `first`: the first of them."""
        line = first
        if self.session.unfinished_runs:
            self.print_text("Going on with what was interrupted.", "dim")
            await self._guarded(self._finish())
        while True:
            try:
                line = line or await self.face.read_line()
            except EOFError:
                return NextStep(exit_code=0)
            after = await self.handle_line(line.strip())
            line = ""
            if after is not None:
                return after

    async def handle_line(self, line: str) -> NextStep | None:
        """Do one line; what comes after this session if it was the last."""
        if line.lower() in EXIT_WORDS:
            return NextStep(exit_code=0)
        if not line:
            return None
        if line.startswith(("/", "?")):
            return await self._guarded(self._command(line))
        return await self._guarded(
            self._aside(line[1:].strip()) if line.startswith("!") else self._run(line)
        )

    async def _guarded(self, deed: Awaitable[NextStep | None]) -> NextStep | None:
        """Do it; what goes wrong is said, and only a record that cannot be written ends the conversation."""
        try:
            return await deed
        except JournalError as error:
            self.print_text(str(error), "red")
            return NextStep(exit_code=1)
        except (MudroomError, OSError) as error:
            self.print_text(str(error), "red")
        return None

    async def _command(self, line: str) -> NextStep | None:
        name, _, words = line.partition(" ")
        command = self.commands.get(name)
        if command is None:
            self.print_text(
                f"unknown command {name}. {suggest_names(name, self.commands)}", "yellow"
            )
            return None
        return await command(self, words.strip())

    async def _aside(self, command: str) -> None:
        """Run a command; its output joins the next prompt."""
        if not command:
            return
        with self._at_work():
            self._shell = asyncio.ensure_future(
                ShellEscape(self.session, self.settings.home).run(command)
            )
            try:
                text = await self._shell
            except asyncio.CancelledError:
                if not self._shell.cancelled():
                    raise
                text = "(interrupted)"
            finally:
                self._shell = None
        self._asides.append(f"<shell>\n$ {command}\n{text}\n</shell>")
        self.face.scrollback.write_lines(
            *([(f"  {sanitize(row)}", "dim")] for row in text.splitlines()), [("", "")]
        )

    async def _finish(self) -> None:
        with self._at_work():
            report = await self.session.resume_unfinished()
        if report:
            self._ended(report)

    async def _run(self, line: str) -> None:
        told = expand_mentions(line, folder=self.session.cwd, agents=self._agents())
        asides, self._asides = self._asides, []
        with self._at_work():
            report = await self.session.run("\n\n".join([*asides, told]))
        self._ended(report)

    async def compact(self, focus: str) -> None:
        """Have the conversation told in short; Esc stops that, and then nothing has changed. `focus`: what must not be lost."""
        with self._at_work():
            report = await self.session.compact(focus)
        self._ended(report)
        if has_summary(report):
            self.print_text(
                "The conversation goes on from this. All of it is still in the record; /rewind takes you back.",
                "dim",
            )

    @contextmanager
    def _at_work(self) -> Generator[None]:
        self.is_busy = True
        try:
            with self.face.during_run():
                yield
        finally:
            self.is_busy = False

    def _ended(self, report: Report) -> None:
        if trouble := explain_failure(report):
            self.print_text(trouble, "yellow")
        if self.tree.children(report.run_id):
            self.print_text(describe_ledger(self.tally.ledger), "dim")
        self.face.scrollback.write("\n" if trouble or self.tree.children(report.run_id) else "")

    def interrupt(self) -> bool:
        """Stop what is under way and keep what it has; False if nothing is."""
        if self._shell:
            return self._shell.cancel()
        return self.is_busy and self.session.cancel()

    def print_text(self, text: str, style: str = "") -> None:
        """A remark, in lines of its own, that stays on the screen."""
        columns = self.face.scrollback.columns() - 1
        lines: list[Line] = [
            [(part, style)] for line in sanitize(text).splitlines() for part in wrap(line, columns)
        ]
        self.face.scrollback.write_lines(*lines)
