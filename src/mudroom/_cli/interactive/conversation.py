"""A conversation at the prompt: executes each input line and folds the session's events."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import AsyncExitStack, ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct

from ..._adapters.journals.sessions import stream_events
from ..._core.events import AnyEvent, RunWaiting, StoredEvent
from ..._core.runs import Report
from ..._projections.differences import FileChanges
from ..._projections.engine_text import quote, wrap
from ..._projections.ledger import PromptLedgers, describe_ledger
from ..._projections.run_tree import OpenWork, RunTree, describe_work, list_names, list_open_work
from ..._projections.run_view import RunState, RunView
from ..._session.config import Settings
from ..._session.session import Session
from ...driving import SessionDriver, SessionStart, Turn
from ...errors import JournalError, MudroomError, SessionPaused, suggest_names
from ..actions.load_permissions import load_permissions
from ..actions.prompt_calls import (
    FilledPrompt,
    PromptCall,
    ShellEscape,
    fill_call,
    make_call,
    make_filled,
    run_forked,
)
from ..actions.prompt_files import PromptFile, find_prompt_file, load_prompt_files
from ..actions.prompts import (
    PreparedPrompt,
    begins_with_path,
    fetch_prompt,
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
from .input_lines import InputLines, NextStep
from .mentions import MentionCompletions
from .nearest_commands import NEAREST_COMMANDS
from .questions.approvals import ApprovalPrompt
from .recap import Recap
from .scrollback_writer import ScrollbackWriter
from .status_line import StatusLine
from .ui import UI

T = TypeVar("T")

EXIT_WORDS = ("q", "exit", "quit")

# The turn that executes a line. Each turn has its own task.
_turn: ContextVar[Turn[Any]] = ContextVar("turn")


class Plan(Struct, frozen=True):
    """What a conversation's sessions are made from, including the choices of slash commands."""

    settings: Settings
    model: str | None = None
    output_style: str | None = None


# Action of a slash command; takes the conversation and the text after the command's name. Returns
# the next step if the command ends the conversation, else None.
SlashAction = Callable[["Conversation", str], Awaitable[NextStep | None]]


class SlashCommand(NamedTuple):
    """A slash command.

    A command that changes the conversation or its session waits for the prompts before it. Others
    run immediately.
    """

    name: str
    arguments: str
    description: str
    run: SlashAction
    waits: bool = False


class _ShownWork:
    """The work shown by the UI, which may be nested.

    `stoppable` turns prepare a prompt or run a shell command; Esc stops them first.
    """

    def __init__(self, ui: UI) -> None:
        self.stoppable: list[Turn[Any]] = []
        self._ui = ui
        self._count = 0
        self._display = ExitStack()

    @property
    def is_shown(self) -> bool:
        return self._count > 0

    @contextmanager
    def show(self, stoppable: Turn[Any] | None = None) -> Generator[None]:
        turns = [stoppable] if stoppable else []
        if not self._count:
            self._display.enter_context(self._ui.during_run())
        self._count += 1
        self.stoppable += turns
        try:
            yield
        finally:
            for turn in turns:
                self.stoppable.remove(turn)
            self._count -= 1
            if not self._count:
                self._display.close()


class Conversation:
    """One conversation, shown in a UI; `async with` opens its session.

    Lines are turns of a `SessionDriver`: prompts wait for one another, local commands run alongside
    them. `on_open` is awaited each time the session opens; a changed plan opens a new one.
    `resources` close with the conversation; commands add context managers to them.
    """

    session: Session

    def __init__(
        self,
        make_session: Callable[[Plan, SessionStart], Session],
        plan: Plan,
        ui: UI,
        commands: Mapping[str, SlashCommand],
        *,
        approvals: ApprovalPrompt,
        on_open: Callable[[Conversation], Awaitable[object]] | None = None,
        resumes: bool = False,
    ) -> None:
        def prepare_session(plan: Plan, start: SessionStart) -> Session:
            session = self.session = make_session(plan, start)
            session.end_reason = "resume"  # unless the conversation ends with this session
            if start.id is None:
                session.watch_history(self._apply_recorded)
            return session

        self.driver = SessionDriver(
            prepare_session,
            plan,
            questions=approvals.questions,
            on_event=self._apply,
            on_open=None if on_open is None else lambda _: on_open(self),
            resumes=resumes,
        )
        self.ui = ui
        self.commands = commands
        self.tree = RunTree()
        self.recap = Recap(self.tree)
        self.ledgers = PromptLedgers()
        self.file_changes = FileChanges()
        self.status = StatusLine(lambda model: self.session.find_context_window(model))
        self.writer = ScrollbackWriter(
            ui.scrollback, self.tree, show_tasks=not ui.prints_child_lines
        )
        self.mentions = MentionCompletions(
            lambda: (file.path for file in self.session.workspace.walk()),
            lambda: [agent.name for agent in self.session.agents],
            self._list_prompt_files,
            self.list_teammate_names,
            lambda: [each.mention for each in self.session.mcp.resources],
        )
        self.lines = InputLines(self.driver)
        self.resources = AsyncExitStack()
        self.approvals = approvals
        approvals.tree, approvals.stop = self.tree, self.interrupt
        self._prompt_parts: list[str] = []
        self._work = _ShownWork(ui)

    async def __aenter__(self) -> Conversation:
        await self.driver.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.driver.__aexit__()
        await self.resources.aclose()

    @property
    def settings(self) -> Settings:
        return self.driver.plan.settings

    def _apply(self, event: AnyEvent) -> None:
        folds = (self.tree, self.ledgers, self.file_changes, self.status)
        for fold in (*folds, self.writer, self.ui):
            fold.apply(event)
        if isinstance(event, RunWaiting):
            self.lines.note_change()

    def _apply_recorded(self, event: StoredEvent) -> None:
        for fold in (self.tree, self.ledgers, self.file_changes, self.status, self.recap):
            fold.apply(event)

    @property
    def last_answer(self) -> str:
        texts = (root.report.text for root in reversed(self.tree.roots) if root.report)
        return next(texts, "")

    def load_prompt_files(self) -> dict[str, PromptFile]:
        session = self.session
        return load_prompt_files(session.cwd, session.plugins, trusts_folder=session.trusted)

    def _list_prompt_files(self) -> list[tuple[str, str]]:
        files = self.load_prompt_files().values()
        named = [(each.name, each.source.description) for each in files]
        own = [each for each in named if each[0] not in self.commands]
        return own + list_prompts(self.session)

    def list_teammate_names(self) -> list[str]:
        return list_names(self.tree)

    async def read_run(self, run_id: str) -> list[StoredEvent]:
        """Read a run's recorded events. If they cannot be read, print the error."""
        events: list[StoredEvent] = []

        async def read() -> None:
            store = open_store(self.settings.home)
            async for event in stream_events(store, self.session.id):
                if event.run == run_id:
                    events.append(event)

        await self._report_errors(read())
        return events

    async def send_message(self, name: str, text: str, *, approve: bool | None = None) -> None:
        """Send the user's message to a named child. It wakes an idle child.

        `approve` answers the child's plan; None for a plain message.
        """
        await self._report_errors(self._send_message(name, text, approve))

    async def _send_message(self, name: str, text: str, approve: bool | None) -> None:
        # Without a running prompt, no run can deliver the message.
        waits = not (self.is_busy or self.session.interrupted_run)
        if not await self.session.runs.send_durably(name, text, approve=approve):
            reason = "has no open plan" if approve is not None else "cannot work again"
            self.print_text(f"Nothing was sent: {name} {reason}. /team shows its state.", "yellow")
            return
        action = {None: "Message to", True: "Approved the plan of", False: "Refused the plan of"}
        self.print_text(f"  {action[approve]} {name}{f': {text}' if text else ''}", "yellow")
        if waits:
            self.print_text(f"  Stored; {name} works again with it at your next prompt.", "dim")

    async def run_until_done(self, first: str = "") -> NextStep:
        """Execute input lines, starting with `first`, until the conversation ends."""
        if self.session.unfinished_runs:
            self.lines.begin(self._finish)
        if first:
            self.take(first)
        return await self.lines.run(self.ui, self.take)

    def take(self, line: str) -> Turn[NextStep | None]:
        """Execute a line now if it needs no turn of the conversation, else queue it.

        While only background work continues, a prompt is a message to the model waiting for it.
        """
        at_once = not self.lines.is_empty and self._acts_at_once(line.strip())
        return self.lines.begin(lambda turn: self._execute(turn, line), line=line, at_once=at_once)

    def steer(self, line: str) -> None:
        """Send a line to the working model now. If it has just ended, make the line a prompt."""
        self.lines.begin(lambda turn: self._execute(turn, line, steers=True), at_once=True)

    def _acts_at_once(self, line: str) -> bool:
        if line.lower() in EXIT_WORDS or split_message(line, self.list_teammate_names())[0]:
            return True
        if _is_command(line):
            command = self.commands.get(line.split()[0])
            return command is not None and not command.waits
        return self.is_waiting

    async def wait_until_ready(self) -> None:
        """Wait until earlier lines are done and a new one would be executed at once."""
        await self.lines.wait_until_ready(
            lambda: self.is_waiting and not self.tree.roots[-1].unread
        )

    async def handle_line(self, line: str) -> NextStep | None:
        """Execute one line and wait for it to finish."""
        return await self.take(line).wait()

    async def _execute(
        self, turn: Turn[Any], line: str, *, steers: bool = False
    ) -> NextStep | None:
        _turn.set(turn)
        text = self.ui.begin_line(line, is_shown=not steers).strip()
        return await self._report_errors(self._act(text, steers=steers))

    async def _act(self, line: str, *, steers: bool) -> NextStep | None:
        if line.lower() in EXIT_WORDS:
            return NextStep(exit_code=0)
        name, text = split_message(line, self.list_teammate_names())
        if not line:
            pass
        elif _is_command(line):
            return await self._run_command(line)
        elif line.startswith("!"):
            await self._run_shell_line(line[1:].strip())
        elif name:
            await self.send_message(name, text)
        elif steers or _turn.get() is not self.driver.current:
            await self._send_to_model(line, is_shown=steers)
        else:
            await self.run_prompt(line)
        return None

    async def _report_errors(self, action: Awaitable[NextStep | None]) -> NextStep | None:
        """Await an action and print its errors. Only a journal error ends the conversation."""
        try:
            return await action
        except SessionPaused:
            return NextStep(exit_code=0)
        # Nothing can be recorded, so nothing may go on.
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
            return await command.run(self, arguments.strip())
        files = await asyncio.to_thread(self.load_prompt_files)
        if file := find_prompt_file(files, name, trusts_folder=self.session.trusted):
            await self._run_prompt_file(file, arguments.strip())
        elif not await self._run_server_prompt(name, arguments.strip()):
            nearest = NEAREST_COMMANDS.get(name) or suggest_names(name, [*self.commands, *files])
            # A list of all commands would not help here.
            if nearest.startswith("Known:"):
                nearest = "/help lists the commands."
            self.print_text(f"unknown command {name}. {nearest}", "yellow")
        return None

    async def _run_prompt_file(self, file: PromptFile, arguments: str) -> None:
        """Send a file's prompt; with `context: fork` it becomes a child's task."""
        session = self.session
        settings = self.settings
        approvals = self.approvals
        call = make_call(file, arguments, settings, session.cwd, approvals.trusted_prompts)
        self.print_text(f"Prompt of {file.source.path}", "dim")
        for notice in call.notices:
            self.print_text(notice, "yellow")
        permissions = load_permissions(settings, session.cwd, can_ask=True).permissions
        filled = await self.run_stoppable(
            fill_call(call, session, settings, permissions, approvals.questions)
        )
        if filled is None:
            return
        with approvals.allow(*call.rules):
            if call.template.forks:
                await self._run_fork(call, filled)
            else:
                await self.run_prompt(filled.line, filled)

    async def _run_fork(self, call: PromptCall, filled: FilledPrompt) -> None:
        """Give a call's prompt to a child, whose report is added to the next prompt."""
        report = await self.run_stoppable(
            run_forked(call, filled, self.session, self.settings, self.print_note)
        )
        if report is None:
            return
        self.print_text(report.text)
        self.add_to_prompt(wrap("command", quote(report.text), name=call.file.name))
        self.print_ending(report)

    async def _run_server_prompt(self, name: str, arguments: str) -> bool:
        """Send a server's prompt. Return False if none has this name."""
        if not self.session.mcp.servers:
            return False
        fetched = await self.run_stoppable(fetch_prompt(self.session, name, arguments))
        if fetched is None:
            # If the name can only be a server's, the user stopped it.
            return name.startswith("/mcp__")
        filled = make_filled(fetched)
        await self.run_prompt(filled.line, filled)
        return True

    async def _run_shell_line(self, command: str) -> None:
        """Run a shell command; its output is added to the next prompt."""
        if not command:
            return
        shell = ShellEscape(self.session, self.settings.home)
        text = await self.run_stoppable(shell.run(command))
        text = "(interrupted)" if text is None else text
        self.add_to_prompt(wrap("shell", f"$ {command}\n{quote(text)}"))
        rows: list[Line] = [[(f"  {row}", "dim")] for row in text.splitlines()]
        self.ui.scrollback.write_lines(*rows, [("", "")])

    async def open_again(self, plan: Plan) -> None:
        """Continue the conversation in a session with a new plan. Only for the current turn."""
        self.driver.plan = plan
        await _turn.get().open()
        if self.session.unfinished_runs:
            await self._resume(_turn.get())

    async def run_stoppable(
        self, work: Awaitable[T], *, stopped: str = "(interrupted)"
    ) -> T | None:
        """Await work that Esc can stop; if it does, print `stopped` and return None."""
        turn = _turn.get()
        with self._work.show(turn):
            result = await turn.prepare(work)
            if turn.is_stopped:
                self.print_text(stopped, "yellow")
                return None
            return result

    def add_to_prompt(self, text: str) -> None:
        self._prompt_parts.append(text)

    def list_rules(self) -> list[str]:
        """List the rules that each compaction keeps, including those in the next prompt."""
        return self.status.receipts.list_rules(*self._prompt_parts)

    async def _finish(self, turn: Turn[Any]) -> NextStep | None:
        _turn.set(turn)
        return await self._report_errors(self._resume(turn))

    async def _resume(self, turn: Turn[Any]) -> None:
        is_interrupted = self._last_root and self._last_root.is_interrupted
        text = (
            "Continuing the background work."
            if is_interrupted
            else "Finishing the interrupted run."
        )
        self.print_text(text, "dim")
        with self._work.show():
            report = await turn.resume()
        if report:
            self.print_ending(report)

    async def run_prompt(self, line: str, filled: FilledPrompt | None = None) -> None:
        with self._work.show():
            prompt = await self._prepare(line, filled)
            if prompt is None:
                return
            self._prompt_parts.clear()
            if self.session.interrupted_run:  # this run reads the prompt as a message
                self.writer.hide_message(prompt.text + prompt.files)
            options = {"model": filled.model} if filled else {}
            report = await _turn.get().call(
                lambda session: run_prepared(session, prompt, "", self.print_note, **options)
            )
        if report:
            self.print_ending(report)

    async def _prepare(
        self, line: str, filled: FilledPrompt | None = None
    ) -> PreparedPrompt | None:
        """Prepare a prompt with what commands added to it, None if it was stopped."""
        teammates = self.list_teammate_names()
        typed = filled.typed if filled else None
        work = prepare_prompt(self.session, self.settings, line, teammates=teammates, typed=typed)
        prompt = await self.run_stoppable(work, stopped="Stopped before anything was sent.")
        if prompt is not None:
            text = filled.put_outputs(prompt.text) if filled else prompt.text
            prompt.text = "\n\n".join([*self._prompt_parts, text])
        return prompt

    async def _send_to_model(self, line: str, *, is_shown: bool) -> None:
        """Send a prompt as a message to the last root run; if that has ended, queue the line."""
        prompt = await self._prepare(line)
        if prompt is None:
            return
        for note in prompt.notes:
            self.print_note(note)
        if prompt.images:
            self.print_note("The images are not sent, only their paths: a message has only text.")
        text = prompt.text + prompt.files
        if not is_shown:
            self.writer.hide_message(text)
        run = self._last_root
        part_count = len(self._prompt_parts)
        if run and await self.session.runs.send_durably(run.run_id, text):
            del self._prompt_parts[:part_count]
        else:
            self.lines.begin(lambda turn: self._execute(turn, line), line=line)

    def print_note(self, note: str) -> None:
        self.print_text(note, "dim")

    async def compact(self, focus: str) -> None:
        """Replace the conversation with a summary that keeps the focus. Esc cancels."""
        with self._work.show():
            report = await _turn.get().call(lambda session: session.compact(focus))
        if report:
            self.print_ending(report)

    @property
    def is_busy(self) -> bool:
        """True while a prompt, a compaction or a shell command is running."""
        return self._work.is_shown

    @property
    def _last_root(self) -> RunView | None:
        return self.tree.roots[-1] if self.tree.roots else None

    @property
    def is_waiting(self) -> bool:
        """True while only the last prompt's background children and commands are running."""
        root = self._last_root
        if root is None or root.report or self._work.stoppable:
            return False
        if root.is_interrupted and self.is_busy:  # the next prompt is about to reach it
            return False
        return root.state is RunState.WAITING and not root.open_calls

    @property
    def is_idle(self) -> bool:
        """True if a prompt would be sent immediately."""
        return self.is_waiting or not self.is_busy

    @property
    def background_work(self) -> list[OpenWork]:
        """Children and commands that continue while the prompt is idle."""
        if not self.is_waiting:
            return []
        return [work for work in list_open_work(self.tree, now=time.time()) if work.parent]

    def print_ending(self, report: Report) -> None:
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
        """Print the prompt's ledger, and the session's if earlier prompts had children."""
        of_prompt = self.ledgers.prompt
        of_session = self.ledgers.session
        self.print_text(describe_ledger(of_prompt), "dim")
        if of_session.children > of_prompt.children:
            self.print_text(f"Session: {describe_ledger(of_session)}", "dim")

    def interrupt(self) -> bool:
        """Stop the current turn or shell command; background work continues.

        Returns False if idle.
        """
        if self._work.stoppable:
            return self._work.stoppable[-1].stop()
        return self.is_busy and self.driver.interrupt()

    def stop_all(self) -> bool:
        """Stop the prompt and all background work. Returns False if nothing is running."""
        work = describe_work(self.background_work)
        is_prompt_open = bool(self._last_root and not self._last_root.report)
        if not ((self.is_busy or work) and self.driver.cancel()):
            return False
        if is_prompt_open:
            self.print_text(f"Stopped {work or 'the prompt and its background work'}.", "yellow")
        return True

    def print_text(self, text: str, style: str = "") -> None:
        self.ui.scrollback.write_text(text, style)


def _is_command(line: str) -> bool:
    return line.startswith(("/", "?")) and not begins_with_path(line)
