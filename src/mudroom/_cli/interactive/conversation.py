"""A conversation at the prompt: executes each input line and folds the session's events."""

from __future__ import annotations

import asyncio
import time
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Generator,
    Iterable,
    Mapping,
)
from contextlib import AsyncExitStack, contextmanager
from typing import Any, TypeVar

from msgspec import Struct

from ..._adapters.journals.sessions import stream_events
from ..._core.events import AnyEvent, RunFinished, StoredEvent
from ..._core.runs import Report, has_summary, is_child_id
from ..._projections.differences import FileChanges
from ..._projections.ledger import PromptLedgers, describe_ledger
from ..._projections.run_tree import OpenWork, RunTree, describe_work, list_names, list_open_work
from ..._session.config import Settings
from ..._session.session import Session
from ...errors import JournalError, MudroomError, SessionPaused, suggest_names
from ..actions.prompt_calls import FilledPrompt
from ..actions.prompt_files import PromptFile, find_prompt_file, load_session_prompts
from ..actions.prompts import (
    begins_with_path,
    list_prompts,
    prepare_prompt,
    run_prepared,
    split_message,
)
from ..actions.user_store import open_store
from ..output.report import (
    describe_changed_files,
    describe_interrupt,
    describe_stop,
    explain_failure,
)
from ..output.text import Line
from .input_line.mentions import MentionCompletions
from .prompts.file_prompts import run_prompt_file
from .prompts.other_programs import describe_nearest
from .prompts.server_prompts import run_server_prompt
from .prompts.shell_lines import run_shell_line
from .questions.approvals import ApprovalPrompt
from .scrollback_writer import ScrollbackWriter
from .status_line import StatusLine
from .ui import UI

T = TypeVar("T")

EXIT_WORDS = ("q", "exit", "quit")


class NextStep(Struct, frozen=True, kw_only=True):
    """What follows a session: exit, or another session.

    Arguments:
        exit_code: the program's exit code; None to open another session.
        resume: id of the session to resume; "" for a new one.
        is_cleared: the user ended the conversation with `/clear`.
        model, mode, output_style: of the next session; "" for no change.
    """

    exit_code: int | None = None
    resume: str = ""
    is_cleared: bool = False
    model: str = ""
    mode: str = ""
    output_style: str = ""


# Action of a slash command; takes the conversation and the text after the command name. Returns the
# next step if the command ends the session, else None.
SlashAction = Callable[["Conversation", str], Awaitable[NextStep | None]]


class Conversation:
    """One session, shown in a UI.

    Arguments:
        session: may be opened after this object is created.
        commands: slash commands by name, with the slash.

    Attributes:
        resources: closes with the session; commands add context managers to it.
        approvals: has the rules that the user approved.
    """

    def __init__(
        self, session: Session, ui: UI, settings: Settings, commands: Mapping[str, SlashAction]
    ) -> None:
        self.session = session
        self.ui = ui
        self.settings = settings
        self.commands = commands
        self.tree = RunTree()
        self.ledgers = PromptLedgers()
        self.file_changes = FileChanges()
        self.status = StatusLine(session.find_context_window)
        self.writer = ScrollbackWriter(
            ui.scrollback, self.tree, show_tasks=not ui.prints_child_lines
        )
        self.mentions = MentionCompletions(
            self._list_paths,
            self._list_agent_names,
            self._list_prompt_files,
            self.list_teammate_names,
            lambda: [each.mention for each in self.session.mcp_resources],
        )
        self.is_busy = False
        self.last_answer = ""
        self.resources = AsyncExitStack()
        self.approvals: ApprovalPrompt | None = None
        self._prompt_parts: list[str] = []
        self._stoppable: asyncio.Task[Any] | None = None
        session.watch(self._apply)
        session.watch_history(self._apply_recorded)

    def _apply(self, event: AnyEvent) -> None:
        folds = (self.tree, self.ledgers, self.file_changes, self.status)
        for fold in (*folds, self.writer, self.ui):
            fold.apply(event)
        self._store_answer(event)

    # Recorded events are not printed again.
    def _apply_recorded(self, event: StoredEvent) -> None:
        for fold in (self.tree, self.ledgers, self.file_changes, self.status):
            fold.apply(event)
        self._store_answer(event)

    def _store_answer(self, event: AnyEvent) -> None:
        if isinstance(event, RunFinished) and not is_child_id(event.run):
            self.last_answer = event.report.text

    def _list_paths(self) -> Iterable[str]:
        return (file.path for file in self.session.workspace.walk())

    def load_prompt_files(self) -> dict[str, PromptFile]:
        return load_session_prompts(self.session)

    def _list_prompt_files(self) -> list[tuple[str, str]]:
        files = self.load_prompt_files().values()
        named = [(each.name, each.source.description) for each in files]
        own = [each for each in named if each[0] not in self.commands]
        return own + list_prompts(self.session)

    def _list_agent_names(self) -> list[str]:
        return [agent.name for agent in self.session.agents]

    def list_teammate_names(self) -> list[str]:
        return list_names(self.tree)

    async def read_run(self, run_id: str) -> list[StoredEvent]:
        """Return the recorded events of a run. If they cannot be read, print the error."""
        events: list[StoredEvent] = []

        async def read() -> None:
            store = open_store(self.settings.home)
            async for event in stream_events(store, self.session.id):
                if event.run == run_id:
                    events.append(event)

        await self._report_errors(read())
        return events

    async def send_message(self, name: str, text: str, *, approve: bool | None = None) -> None:
        """Send a message of the user to a named child. An idle child works again with it.

        Arguments:
            approve: the answer to the child's plan; None for a message.
        """
        await self._report_errors(self._send_message(name, text, approve))

    async def _send_message(self, name: str, text: str, approve: bool | None) -> None:
        # Without a prompt at work, no run is there to deliver the message.
        waits = not (self.is_busy or self.session.interrupted_run)
        if not await self.session.send_durably(name, text, approve=approve):
            reason = "has no open plan" if approve is not None else "cannot work again"
            self.print_text(f"Nothing was sent: {name} {reason}. /team shows its state.", "yellow")
            return
        action = {None: "Message to", True: "Approved the plan of", False: "Refused the plan of"}
        self.print_text(f"  {action[approve]} {name}{f': {text}' if text else ''}", "yellow")
        if waits:
            self.print_text(f"  Stored; {name} works again with it at your next prompt.", "dim")

    @property
    def printed_runs(self) -> Collection[str]:
        """Ids of child runs whose results are printed."""
        return self.writer.printed_runs

    def format_pending(self, columns: int, height: int) -> list[Line]:
        """Return the output that is not printed yet, in at most `height` rows."""
        return self.writer.format_pending(columns, height)

    async def run_until_done(self, first: str = "") -> NextStep:
        """Handle input lines until the session ends; return the next step.

        Arguments:
            first: a line to handle before any line is read.
        """
        line = first
        if self.session.unfinished_runs:
            is_waiting = self.tree.roots and self.tree.roots[-1].is_interrupted
            work = "background work" if is_waiting else "interrupted run"
            self.print_text(f"{'Continuing' if is_waiting else 'Finishing'} the {work}.", "dim")
            await self._report_errors(self._finish())
        while True:
            try:
                line = line or await self.ui.read_line()
            except EOFError:
                return NextStep(exit_code=0)
            step = await self.handle_line(line.strip())
            line = ""
            if step is not None:
                return step

    async def handle_line(self, line: str) -> NextStep | None:
        """Execute one line of input; return the next step if the line ends the session."""
        if line.lower() in EXIT_WORDS:
            return NextStep(exit_code=0)
        if not line:
            return None
        if line.startswith(("/", "?")) and not begins_with_path(line):
            return await self._report_errors(self._run_command(line))
        if line.startswith("!"):
            return await self._report_errors(run_shell_line(self, line[1:].strip()))
        name, text = split_message(line, self.list_teammate_names())
        if name:
            await self.send_message(name, text)
            return None
        return await self._report_errors(self.run_prompt(line))

    async def _report_errors(self, action: Awaitable[NextStep | None]) -> NextStep | None:
        """Await an action and print its errors. Only a journal error ends the conversation."""
        try:
            return await action
        except SessionPaused:
            return NextStep(exit_code=0)
        # Nothing can be recorded any more, so nothing may go on.
        except JournalError as error:
            self.print_text(str(error), "red")
            return NextStep(exit_code=1)
        except (MudroomError, OSError) as error:
            self.print_text(str(error), "red")
        return None

    async def _run_command(self, line: str) -> NextStep | None:
        name, _, arguments = line.partition(" ")
        command = self.commands.get(name)
        if command:
            return await command(self, arguments.strip())
        files = await asyncio.to_thread(self.load_prompt_files)
        if file := find_prompt_file(files, name, trusts_folder=self.session.trusted):
            await run_prompt_file(self, file, arguments.strip())
        elif not await run_server_prompt(self, name, arguments.strip()):
            nearest = describe_nearest(name) or suggest_names(name, [*self.commands, *files])
            # A list of all commands would not help here.
            if nearest.startswith("Known:"):
                nearest = "/help lists the commands."
            self.print_text(f"unknown command {name}. {nearest}", "yellow")
        return None

    async def run_stoppable(
        self, work: Coroutine[Any, Any, T], *, stopped: str = "(interrupted)"
    ) -> T | None:
        """Await work that Esc stops; print `stopped` and return None if it was stopped."""
        with self._mark_busy():
            task = self._stoppable = asyncio.ensure_future(work)
            try:
                return await task
            except asyncio.CancelledError:
                # The conversation itself was cancelled, not the work.
                if not task.cancelled():
                    raise
                self.print_text(stopped, "yellow")
                return None
            finally:
                self._stoppable = None

    def add_to_prompt(self, text: str) -> None:
        self._prompt_parts.append(text)

    def list_rules(self) -> list[str]:
        """Return the rules that each compaction keeps, including those of the next prompt."""
        return self.status.receipts.list_rules(*self._prompt_parts)

    async def _finish(self) -> None:
        with self._mark_busy():
            report = await self.session.resume_unfinished()
        if report:
            self.print_ending(report)

    async def run_prompt(self, line: str, filled: FilledPrompt | None = None) -> None:
        """Send a prompt. `filled`: outputs to put into it, and its model."""
        teammates = self.list_teammate_names()
        typed = filled.typed if filled else None
        work = prepare_prompt(self.session, self.settings, line, teammates=teammates, typed=typed)
        with self._mark_busy():
            prompt = await self.run_stoppable(work, stopped="Stopped before anything was sent.")
            if prompt is None:
                return
            parts = self._prompt_parts
            self._prompt_parts = []
            text = filled.put_outputs(prompt.text) if filled else prompt.text
            prompt.text = "\n\n".join([*parts, text])
            options = {"model": filled.model} if filled else {}
            report = await run_prepared(self.session, prompt, "", self.print_note, **options)
        self.print_ending(report)

    def print_note(self, note: str) -> None:
        self.print_text(note, "dim")

    async def compact(self, focus: str) -> None:
        """Replace the conversation by a summary. Esc stops this and leaves it unchanged.

        Arguments:
            focus: what the summary must keep.
        """
        with self._mark_busy():
            report = await self.session.compact(focus)
        self.print_ending(report)
        if has_summary(report):
            self.print_text("Conversation compacted. Use /rewind to undo.", "dim")

    @contextmanager
    def _mark_busy(self) -> Generator[None]:
        # The actions that mark it contain each other.
        if self.is_busy:
            yield
            return
        self.is_busy = True
        try:
            with self.ui.during_run():
                yield
        finally:
            self.is_busy = False

    @property
    def background_work(self) -> list[OpenWork]:
        """The children and commands that continue although no prompt works."""
        root = self.tree.roots[-1] if self.tree.roots else None
        if self.is_busy or root is None or not root.is_interrupted or root.report:
            return []
        return [work for work in list_open_work(self.tree, now=time.time()) if work.parent]

    def print_ending(self, report: Report) -> None:
        """Print how a run ended, the files it changed, and the ledger."""
        if report.is_interrupted:
            work = describe_work(self.background_work)
            self.print_text(describe_interrupt(work), "yellow")
            return
        failure = describe_stop(report) or explain_failure(report)
        has_children = bool(self.tree.children(report.run_id))
        if failure:
            self.print_text(failure, "yellow")
        changes = describe_changed_files(report)
        if changes:
            self.print_text(f"{changes}. /diff shows the differences.", "dim")
        if has_children:
            self._print_ledger()
        if failure or changes or has_children:
            self.ui.scrollback.write("\n")

    def _print_ledger(self) -> None:
        """Print the ledger of the prompt, and of the session if earlier prompts had children."""
        of_prompt = self.ledgers.prompt
        of_session = self.ledgers.session
        self.print_text(describe_ledger(of_prompt), "dim")
        if of_session.children > of_prompt.children:
            self.print_text(f"Session: {describe_ledger(of_session)}", "dim")

    def interrupt(self) -> bool:
        """Stop the current turn or shell command; background work continues.

        Returns False if idle.
        """
        if self._stoppable:
            return self._stoppable.cancel()
        return self.is_busy and self.session.interrupt()

    def stop_all(self) -> bool:
        """Stop the prompt and all background work. Returns False if nothing works."""
        if self._stoppable and self._stoppable.cancel():
            self.session.cancel()
            return True
        work = describe_work(self.background_work)
        if not (self.is_busy or work) or not self.session.cancel():
            return False
        self.print_text(f"Stopped {work or 'the prompt and its background work'}.", "yellow")
        return True

    def print_text(self, text: str, style: str = "") -> None:
        """Print text in lines of its own that stay on the screen."""
        self.ui.scrollback.write_text(text, style)
